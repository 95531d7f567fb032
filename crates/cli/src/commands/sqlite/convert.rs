//! From an SQLite file to a store and back, page by page.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use esker_pages::{Durability, Missing, Options, StoreFile};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::progress;
use esker_terminal::signals::Interrupt;
use indicatif::HumanBytes;
use tempfile::NamedTempFile;

use super::{Export, Import, open_read_only};

const BAR: &str = "{bytes} of {total_bytes} [{wide_bar}] {bytes_per_sec}, {eta} left";
/// The bytes with which an SQLite database begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Bytes of its header.
const HEADER: usize = 100;
/// The offsets in the header of the kinds of journal by which the file is written and read: 2 is
/// the log of SQLite's own.
const FORMATS: [usize; 2] = [18, 19];
/// After how many pages a transaction of an import looks whether to go on.
const LOOK_EVERY: u32 = 256;

/// The fields of a database's header.
struct Header {
    page_size: u32,
    pages: u32,
}

pub(super) fn import(args: &Import) -> Result<(), Failure> {
    let (mut source, header) = open_source(&args.source)?;
    refuse_unfinished(&args.source)?;
    if args.store.exists() && !args.force {
        return exists(&args.store);
    }
    let made = temporary_file(&args.store)?;
    let options = Options::default().page_size(header.page_size);
    let options = options.allocation(args.allocation.into());
    let file = StoreFile::open(made.path(), Missing::Create, options)?;
    copy_in(&mut source, &header, &file, &args.source)?;
    file.close()?;
    put(made, &args.store)?;
    say(&args.store, &header)
}

/// Opens an SQLite database and reads its header.
fn open_source(path: &Path) -> Result<(File, Header), Failure> {
    let name = || path.display().to_string();
    let failed = |source| Failure::Read { name: name(), source };
    let mut file = File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    let mut head = [0; HEADER];
    if len < HEADER as u64 {
        return Err(Failure::Input(format!("{} is no SQLite database: it is too short", name())));
    }
    file.read_exact(&mut head).map_err(failed)?;
    if !head.starts_with(MAGIC) {
        return Err(Failure::Input(format!("{} is no SQLite database", name())));
    }
    let page_size = match u16::from_be_bytes([head[16], head[17]]) {
        1 => 65_536,
        bytes => u32::from(bytes),
    };
    let is_size = page_size.is_power_of_two() && page_size >= 512;
    if !is_size || !len.is_multiple_of(u64::from(page_size)) {
        let what = format!(
            "{} is damaged: {len} bytes are no whole pages of {page_size} bytes; restore it, or \
             dump what can be read with `sqlite3 SRC .recover`",
            name()
        );
        return Err(Failure::Damaged(what));
    }
    let pages = u32::try_from(len / u64::from(page_size))
        .map_err(|_| Failure::Input(format!("{} has too many pages", name())))?;
    Ok((File::open(path).map_err(failed)?, Header { page_size, pages }))
}

/// A log or a hot journal holds what the file alone does not.
fn refuse_unfinished(path: &Path) -> Result<(), Failure> {
    for ending in ["-wal", "-journal"] {
        let mut temporary_file = path.as_os_str().to_owned();
        temporary_file.push(ending);
        let temporary_file = PathBuf::from(temporary_file);
        if fs::metadata(&temporary_file).is_ok_and(|metadata| metadata.len() > 0) {
            return Err(Failure::Input(format!(
                "{} is there: close every application that has the database open, then run \
                 `sqlite3 {} 'PRAGMA journal_mode=DELETE'`",
                temporary_file.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

fn copy_in(
    source: &mut File,
    header: &Header,
    file: &StoreFile,
    path: &Path,
) -> Result<(), Failure> {
    let interrupt = Interrupt::install()?;
    let total = u64::from(header.pages) * u64::from(header.page_size);
    let bar = progress::bar(Some(total), BAR);
    let mut page = vec![0; header.page_size as usize];
    let mut writer = file.store.begin(&file.store.pin())?;
    for number in 0..header.pages {
        if number % LOOK_EVERY == 0 {
            interrupt.check()?;
        }
        let refused = |source| Failure::Read { name: path.display().to_string(), source };
        source.read_exact(&mut page).map_err(refused)?;
        if number == 0 {
            without_wal(&mut page);
        }
        writer.write(number, 0, &page)?;
        bar.inc(page.len() as u64);
    }
    writer.commit(Durability::Full)?;
    bar.finish_and_clear();
    Ok(())
}

/// Has the first page of a database ask for no WAL: a store has none, and SQLite may have copied
/// such a page into it.
fn without_wal(page: &mut [u8]) {
    for format in FORMATS {
        page[format] = page[format].min(1);
    }
}

pub(super) fn export(args: &Export) -> Result<(), Failure> {
    let file = open_read_only(&args.store)?;
    let snapshot = match &args.version {
        Some(name) => file.store.at_named(name)?,
        None => file.store.pin(),
    };
    if args.target.exists() && !args.force {
        return exists(&args.target);
    }
    let header = Header { page_size: snapshot.page_size(), pages: snapshot.pages() };
    let interrupt = Interrupt::install()?;
    let total = u64::from(header.pages) * u64::from(header.page_size);
    let bar = progress::bar(Some(total), BAR);
    let made = temporary_file(&args.target)?;
    let refused = |source| Failure::System { what: "write the database", source };
    let mut target = BufWriter::with_capacity(1 << 20, made.as_file());
    let mut page = vec![0; header.page_size as usize];
    for number in 0..header.pages {
        if number % LOOK_EVERY == 0 {
            interrupt.check()?;
        }
        snapshot.read(number, 0, &mut page)?;
        if number == 0 {
            without_wal(&mut page);
        }
        target.write_all(&page).map_err(refused)?;
        bar.inc(page.len() as u64);
    }
    target.flush().map_err(refused)?;
    drop(target);
    bar.finish_and_clear();
    put(made, &args.target)?;
    say(&args.target, &header)
}

fn exists<T>(path: &Path) -> Result<T, Failure> {
    Err(Failure::Input(format!("{} exists; --force replaces it", path.display())))
}

/// A file of the same folder, which vanishes unless it is [`put`].
fn temporary_file(path: &Path) -> Result<NamedTempFile, Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    tempfile::Builder::new()
        .prefix(".esker-")
        // As SQLite makes its files, less what the umask takes.
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder.unwrap_or_else(|| Path::new(".")))
        .map_err(|source| Failure::System {
            what: "make a temporary file in the folder of the result",
            source,
        })
}

/// Gives a file its name, durably and at once.
fn put(made: NamedTempFile, path: &Path) -> Result<(), Failure> {
    let refused = |source| Failure::System { what: "put the file in its place", source };
    made.as_file().sync_all().map_err(refused)?;
    made.persist(path).map_err(|error| refused(error.error))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = OpenOptions::new().read(true).open(folder.unwrap_or_else(|| Path::new(".")));
    folder.and_then(|folder| folder.sync_all()).map_err(refused)
}

fn say(path: &Path, header: &Header) -> Result<(), Failure> {
    let mut output = Output::new();
    let bytes = u64::from(header.pages) * u64::from(header.page_size);
    output.line(&format!(
        "{}: {} in {} pages of {} bytes",
        path.display(),
        HumanBytes(bytes),
        header.pages,
        header.page_size
    ))?;
    output.flush()
}
