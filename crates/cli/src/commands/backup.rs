//! `backup` and `restore`: a copy of the whole store at one moment, and a store made of it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use esker::{Backup, BackupProgress};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::progress::{self, Pace};
use esker_terminal::signals::Interrupt;
use indicatif::{HumanBytes, ProgressBar};
use serde_json::json;

use super::place::open_or_follow;
use crate::args;

const BAR: &str = "{bytes} of at most {total_bytes} [{wide_bar}] {bytes_per_sec}";
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) const BACKUP_HELP: &str = r#"Back up the current state of the store to the folder DEST

DEST is new, empty, or has an older backup of the same store; then the backup is incremental: only
data that has changed is read and written. The older backup stays complete until the new one is
durable, also if this command is interrupted, killed or fails.

Copied data is verified with its checksums. Data that the older backup already has is not read
again; `esker check DEST` reads all of it. A store that a program has open is copied as of one
moment, and the program does not wait for it.

With --json, prints one object: "seq" is the sequence number of the backup, "run" counts the
backups to DEST, "bytes_read" and "bytes_written" are the I/O of this one, "bytes_reused" is the
data that DEST already had, "bytes_total" the data of the backup."#;

pub(crate) const BACKUP_EXAMPLES: &str = "\
Examples:
  esker backup words.esker /mnt/backup/words      # full backup
  esker backup words.esker /mnt/backup/words      # incremental backup
  esker check /mnt/backup/words                   # verifies the backup
  esker restore /mnt/backup/words words.restored";

pub(crate) const RESTORE_HELP: &str = r#"Restore the backup SRC to a new store in the folder DEST

DEST is new, empty, or has the remains of an interrupted restore, which starts again. Every byte is
verified; if any is damaged, no store is created and the exit code is 3. The backup is not changed.

The new store replaces the original. If you use both, back them up to different folders."#;

pub(crate) const RESTORE_EXAMPLES: &str = "\
Examples:
  esker restore /mnt/backup/words words.esker
  esker check words.esker";

/// Shows how far it is, and ends it when that is asked for.
struct Watch {
    interrupt: Interrupt,
    bar: Option<ProgressBar>,
    pace: Pace,
    started: Instant,
}

impl Watch {
    fn new(json: bool) -> Result<Self, Failure> {
        Ok(Self {
            interrupt: Interrupt::install()?,
            bar: (!json).then(|| progress::bar(Some(0), BAR)),
            pace: Pace::new(REPORT_INTERVAL),
            started: Instant::now(),
        })
    }

    fn look(&mut self, so_far: &BackupProgress) -> ControlFlow<()> {
        if self.interrupt.requested() {
            return ControlFlow::Break(());
        }
        if let Some(bar) = &self.bar
            && self.pace.due()
        {
            bar.set_length(so_far.bytes_at_most);
            bar.set_position(so_far.bytes_copied);
        }
        ControlFlow::Continue(())
    }

    /// The answer, unless it was ended by a signal; and the seconds that it took.
    fn end<T>(&self, answer: esker::Result<T>) -> Result<(T, f64), Failure> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        match answer {
            Ok(answer) => Ok((answer, self.started.elapsed().as_secs_f64())),
            Err(_) if self.interrupt.requested() => Err(Failure::Interrupted),
            Err(error) => Err(error.into()),
        }
    }
}

pub(super) fn backup(args: &args::Backup) -> Result<(), Failure> {
    let mut watch = Watch::new(args.json)?;
    let db = open_or_follow(&args.store.path)?;
    let made = db.backup_with(&args.dest, &mut |so_far| watch.look(so_far));
    let (report, seconds) = watch.end(made)?;
    db.close()?;
    let mut output = Output::new();
    if args.json {
        output.json(&json!({
            "seq": report.seq,
            "run": report.run,
            "bytes_read": report.bytes_read,
            "bytes_written": report.bytes_written,
            "bytes_reused": report.bytes_reused,
            "bytes_total": report.bytes_total,
            "seconds": seconds,
        }))?;
    } else {
        output.line(&format!(
            "backup {} holds {} up to operation {}: \
             read {}, wrote {}, had {} already; {seconds:.1} s",
            report.run,
            HumanBytes(report.bytes_total),
            report.seq,
            HumanBytes(report.bytes_read),
            HumanBytes(report.bytes_written),
            HumanBytes(report.bytes_reused),
        ))?;
    }
    output.flush()
}

pub(super) fn restore(args: &args::Restore) -> Result<(), Failure> {
    let mut watch = Watch::new(args.json)?;
    let backup = Backup::open(&args.source)?;
    let made = backup.restore_with(&args.dest, &mut |so_far| watch.look(so_far));
    let ((), seconds) = watch.end(made)?;
    let mut output = Output::new();
    if args.json {
        output.json(&json!({
            "seq": backup.seq(),
            "run": backup.run(),
            "bytes_total": backup.bytes(),
            "seconds": seconds,
        }))?;
    } else {
        output.line(&format!(
            "restored {} up to operation {} in {seconds:.1} s",
            HumanBytes(backup.bytes()),
            backup.seq(),
        ))?;
    }
    output.flush()
}
