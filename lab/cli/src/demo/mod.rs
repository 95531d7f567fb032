//! `demo`: a real task from end to end, with every answer checked.
//!
//! Every file below a folder is indexed, path to metadata, in a fresh store with little memory;
//! looked up, scanned by folder, partly overwritten and deleted; then the store is closed, opened
//! again, compared with the truth entry by entry, and checked. The order is the same in every
//! run. `files` is the truth, `phases` the work, `report` what is printed; on a terminal, `live`
//! shows the store while it is written and read.

mod files;
mod memory;
mod phases;
mod report;
mod timing;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use esker::Db;
use esker_terminal::exit::Failure;
use esker_terminal::kind::Kind;
use esker_terminal::output::Output;
use esker_terminal::signals::Interrupt;
use tempfile::TempDir;

use self::files::Files;
use self::phases::Phases;
use self::report::{Figures, Narrator};

/// With fewer files, memory holds all of them and the figures say little of the index.
const FILES_FEW: usize = 10_000;

/// What can be typed after `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Folder whose files are indexed
    #[arg(long, value_name = "DIR", default_value = "/usr")]
    root: PathBuf,
    /// Folder of the store, which is kept [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Memory budget of the store in MiB; small, so that data is read from the device
    #[arg(long, value_name = "MIB", default_value = "4")]
    memory_mib: u32,
    #[command(flatten)]
    kind: Kind,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Demo) -> Result<(), Failure> {
    let interrupt = Interrupt::install()?;
    let place = Place::choose(args.store.as_deref())?;
    let narrator = Narrator::new(args.json);

    let files = narrator.walk(|progress| {
        Files::below(&args.root, &interrupt, |count| progress.set_position(count as u64))
    })?;
    if files.list.is_empty() {
        let root = args.root.display();
        return Err(Failure::Input(format!("there are no files below {root} to index")));
    }
    narrator.introduce(&args.root, place.path(), &files)?;

    let memory_before = memory::resident();
    let memory_bytes = u64::from(args.memory_mib) << 20;
    let open = || Db::builder(place.path()).memory_budget(memory_bytes).open();
    let mut phases = Phases::new(files, interrupt, narrator);
    let db = phases.store_and_read(open, args.kind.options())?;
    let before_close = db.stats()?;
    let db = phases.reopen(db, open)?;
    let check = phases.verify(&db)?;
    let after = db.stats()?;
    db.close()?;

    let figures = Figures {
        timings: phases.timings,
        files: phases.files,
        answers_checked: phases.answers_checked,
        counted_bytes_peak: phases.counted_bytes_peak,
        check,
        before_close,
        after,
        memory_before,
        memory_after: memory::resident(),
    };
    let mut output = Output::new();
    if args.json {
        output.json(&figures.as_json())?;
    } else {
        output.bytes(figures.as_text().as_bytes())?;
    }
    output.flush()
}

/// The folder in which the store is made.
enum Place {
    Temporary(TempDir),
    Chosen(PathBuf),
}

impl Place {
    fn choose(wanted: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = wanted else {
            let folder = tempfile::Builder::new().prefix("esker-demo-").tempdir();
            return folder
                .map(Self::Temporary)
                .map_err(|source| Failure::System { what: "make a temporary folder", source });
        };
        // Anything in it would mix with what the demo stores.
        let used = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
        if used {
            let path = path.display();
            return Err(Failure::Input(format!("{path} is not empty: name a fresh folder")));
        }
        Ok(Self::Chosen(path.to_owned()))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Chosen(path) => path,
        }
    }
}
