//! `backup` and `restore`: a copy of the whole store at one moment, and a store made of it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use esker::{Backup, BackupProgress};
use indicatif::{HumanBytes, ProgressBar};
use serde_json::json;

use super::open;
use crate::args;
use crate::exit::Failure;
use crate::output::Output;
use crate::progress::{self, Pace};
use crate::signals::Interrupt;

const BAR: &str = "{bytes} of at most {total_bytes} [{wide_bar}] {bytes_per_sec}";
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) const BACKUP_HELP: &str = r#"Copy the store as it is now to the folder DEST

DEST is new, empty, or has an older backup of the same store: then only what has changed since
is read and written. The older backup is there, whole, until the new one is complete and durable;
stopped, killed or failed, it leaves the older one.

What is copied is checked against its checksums. What the older backup has already is not read
again: `esker check DEST` reads all of it. A store that another process has open is locked:
programs make backups of theirs with `Db::backup`, while they go on.

With --json, one object on standard output: "seq" is the number of the last operation in the
backup, "run" counts the backups into DEST, "bytes_read" of the store and "bytes_written" to DEST
are what it took, "bytes_reused" what DEST had already, "bytes_total" what it holds."#;

pub(crate) const BACKUP_EXAMPLES: &str = "\
Examples:
  esker backup words.esker /mnt/backup/words      # the first time all of it
  esker backup words.esker /mnt/backup/words      # then what has changed
  esker check /mnt/backup/words                   # reads all of the backup
  esker restore /mnt/backup/words words.restored";

pub(crate) const RESTORE_HELP: &str = r#"Make a store of the backup SRC in the folder DEST

DEST is new or empty, or a folder in which an earlier restore was interrupted: that begins afresh.
Every byte is checked on the way; where one is damaged there is no store in the end, and exit
code 3. The backup stays as it is.

The store is as it was: go on with it in the place of the one that was lost. Where both go on, back
them up to different folders."#;

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

    /// What was answered, unless it was ended by a signal; and the seconds that it took.
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
    let db = open(&args.store.path)?;
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
