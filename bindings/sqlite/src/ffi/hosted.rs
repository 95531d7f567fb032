//! VFSs whose files a program keeps itself: [`Files`] and [`File`](crate::hosted::File) behind the
//! interface of C.

use std::ffi::{CString, c_char, c_double, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, ptr, slice};

use rusqlite::ffi::{SQLITE_OK, sqlite3_vfs_register, sqlite3_vfs_unregister};

use super::opened::{self, Bytes, Locks, usable};
use super::types::{File as CFile, IoMethods, Vfs, control, open, shm};
use super::{guard, path};
use crate::code::{Code, OK, Result};
use crate::hosted::{File, Files, Kind, Level, Region, ShmRange};

/// The longest name of a file.
const PATH_MAX: usize = 512;
/// Milliseconds between the beginning of the Julian calendar, by noons, and 1970.
const JULIAN_MILLIS: i64 = 210_866_760_000_000;
const DAY_MILLIS: f64 = 86_400_000.0;

/// What the data of a VFS points to; the files while it is registered.
type Slot = Mutex<Option<Arc<dyn Files>>>;

/// A VFS that is registered until this value is dropped. Close its connections before: afterwards
/// they find no files.
pub struct Registered {
    vfs: *mut Vfs,
    slot: &'static Slot,
}

// SAFETY: the address is only given to SQLite, which may be called from any thread.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

/// Registers a VFS with the SQLite that is linked into this program. A few hundred bytes are kept
/// for the life of the process.
///
/// # Errors
/// A name that holds a null byte, or a refusal of SQLite.
pub fn register(name: &str, files: Arc<dyn Files>) -> std::result::Result<Registered, String> {
    let name = CString::new(name).map_err(|_| format!("{name:?} holds a null byte: name a VFS"))?;
    let slot: &'static Slot = Box::leak(Box::new(Mutex::new(Some(files))));
    let vfs: *mut Vfs = Box::leak(Box::new(Vfs {
        version: 2,
        file_size: c_int::try_from(size_of::<opened::OpenFile>()).unwrap_or(c_int::MAX),
        path_max: PATH_MAX as c_int,
        next: ptr::null_mut(),
        name: Box::leak(name.into_boxed_c_str()).as_ptr(),
        data: ptr::from_ref(slot).cast_mut().cast(),
        open: Some(open_file),
        delete: Some(delete),
        access: Some(access),
        full_path: Some(full_path),
        dl_open: None,
        dl_error: None,
        dl_symbol: None,
        dl_close: None,
        randomness: Some(randomness),
        sleep: Some(sleep),
        time: Some(time),
        last_error: Some(last_error),
        time_ms: Some(time_ms),
    }));
    // SAFETY: a structure of SQLite's layout that lives as long as the process.
    match unsafe { sqlite3_vfs_register(vfs.cast(), 0) } {
        SQLITE_OK => Ok(Registered { vfs, slot }),
        code => Err(format!("SQLite refuses a VFS: {code}")),
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: it was registered, and stays in memory.
        unsafe { sqlite3_vfs_unregister(self.vfs.cast()) };
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").finish_non_exhaustive()
    }
}

/// An open file, and the shared memory that SQLite has addresses of.
struct Hosted {
    file: Box<dyn File>,
    regions: Vec<Arc<Region>>,
}

static METHODS: IoMethods = IoMethods {
    version: 2,
    close: opened::close::<Hosted>,
    read: opened::read::<Hosted>,
    write: opened::write::<Hosted>,
    truncate: opened::truncate::<Hosted>,
    sync: opened::sync::<Hosted>,
    file_size: opened::file_size::<Hosted>,
    lock: opened::lock::<Hosted>,
    unlock: opened::unlock::<Hosted>,
    check_reserved_lock: opened::has_writer::<Hosted>,
    file_control,
    sector_size: opened::sector_size,
    device_characteristics: opened::device_characteristics,
    shm_map: Some(shm_map),
    shm_lock: Some(shm_lock),
    shm_barrier: Some(shm_barrier),
    shm_unmap: Some(shm_unmap),
};

impl Bytes for Hosted {
    fn is_inherited(&self) -> bool {
        false
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result {
        self.file.read(offset, buf)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result {
        self.file.write(offset, bytes)
    }

    fn truncate(&mut self, len: u64) -> Result {
        self.file.truncate(len)
    }

    fn sync(&mut self) -> Result {
        self.file.sync()
    }

    fn size(&self) -> Result<u64> {
        self.file.size()
    }
}

impl Locks for Hosted {
    fn lock(&mut self, level: c_int) -> Result {
        self.file.lock(Level::of(level).ok_or(Code::IOERR_LOCK)?)
    }

    fn unlock(&mut self, level: c_int) -> Result {
        self.file.unlock(Level::of(level).ok_or(Code::IOERR_LOCK)?)
    }

    fn has_writer(&self) -> Result<bool> {
        self.file.has_writer()
    }
}

unsafe extern "C" fn file_control(
    file: *mut CFile,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: the methods are for this type.
        let hosted = unsafe { usable::<Hosted>(file) }?;
        match operation {
            control::COMMIT_PHASETWO => hosted.file.committed(),
            control::POWERSAFE_OVERWRITE => {
                // SAFETY: the argument is room for a number.
                unsafe { argument.cast::<c_int>().write(1) };
                Ok(())
            }
            control::SYNC | control::SIZE_HINT | control::CHUNK_SIZE | control::OVERWRITE => Ok(()),
            _ => Err(Code::NOTFOUND),
        }
    })
}

unsafe extern "C" fn shm_map(
    file: *mut CFile,
    number: c_int,
    bytes: c_int,
    make: c_int,
    out: *mut *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: SQLite passes room for an address.
        unsafe { out.write(ptr::null_mut()) };
        let size = |number| usize::try_from(number).map_err(|_| Code::IOERR_LOCK);
        // SAFETY: the methods are for this type.
        let hosted = unsafe { usable::<Hosted>(file) }?;
        let wanted = size(bytes)?;
        let Some(region) = hosted.file.shm_map(size(number)?, wanted, make != 0)? else {
            return Ok(());
        };
        if region.bytes() < wanted {
            return Err(Code::IOERR_LOCK);
        }
        // SAFETY: as above. Atomics may be changed through a shared reference, and the region is
        // kept until SQLite gives it up.
        unsafe { out.write(region.0.as_ptr().cast_mut().cast()) };
        hosted.regions.push(region);
        Ok(())
    })
}

unsafe extern "C" fn shm_lock(file: *mut CFile, first: c_int, count: c_int, flags: c_int) -> c_int {
    guard(|| {
        let number = |number| u8::try_from(number).map_err(|_| Code::IOERR_LOCK);
        let is_exclusive = flags & shm::EXCLUSIVE != 0;
        let range = ShmRange { first: number(first)?, count: number(count)?, is_exclusive };
        // SAFETY: the methods are for this type.
        let file = &mut unsafe { usable::<Hosted>(file) }?.file;
        match flags & (shm::LOCK | shm::UNLOCK) {
            shm::LOCK => file.shm_lock(range),
            shm::UNLOCK => file.shm_unlock(range),
            _ => Err(Code::IOERR_LOCK),
        }
    })
}

unsafe extern "C" fn shm_barrier(_: *mut CFile) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut CFile, is_removed: c_int) -> c_int {
    guard(|| {
        // SAFETY: the methods are for this type.
        let hosted = unsafe { usable::<Hosted>(file) }?;
        hosted.regions.clear();
        hosted.file.shm_unmap(is_removed != 0)
    })
}

/// The files of a VFS.
///
/// # Safety
/// `vfs` is one that [`register`] has made.
unsafe fn files(vfs: *mut Vfs) -> Result<Arc<dyn Files>> {
    // SAFETY: by the caller's promise; the slot lives as long as the process.
    let slot = unsafe { &*(*vfs).data.cast::<Slot>() };
    slot.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Code::CANTOPEN)
}

/// The name of a file as text.
///
/// # Safety
/// As [`path`].
unsafe fn text<'a>(name: *const c_char) -> Result<&'a str> {
    // SAFETY: by the caller's promise.
    unsafe { path(name) }.and_then(|path| path.to_str()).ok_or(Code::CANTOPEN)
}

unsafe extern "C" fn open_file(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut CFile,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: SQLite passes memory for a file; it looks at the methods only if they are there.
        unsafe { (*file).methods = ptr::null() };
        let kind = match flags {
            _ if flags & open::MAIN_DB != 0 => Kind::Database,
            _ if flags & open::MAIN_JOURNAL != 0 => Kind::Journal,
            _ if flags & open::WAL != 0 => Kind::Wal,
            _ => return Err(Code::CANTOPEN),
        };
        // SAFETY: SQLite calls with the VFS that was registered, and a name.
        let (files, name) = unsafe { (files(vfs)?, text(name)?) };
        let opened = files.open(name, kind, flags & open::CREATE != 0)?;
        let hosted = Hosted { file: opened, regions: Vec::new() };
        // SAFETY: SQLite passes memory of `file_size` bytes; the methods are for this type.
        unsafe { opened::put(file, hosted, &METHODS) };
        if !out_flags.is_null() {
            // SAFETY: it is not null, so there is room for the flags.
            unsafe { out_flags.write(flags) };
        }
        Ok(())
    })
}

unsafe extern "C" fn delete(vfs: *mut Vfs, name: *const c_char, _: c_int) -> c_int {
    // SAFETY: SQLite calls with the VFS that was registered, and a name.
    guard(|| unsafe { files(vfs)?.delete(text(name)?) })
}

unsafe extern "C" fn access(
    vfs: *mut Vfs,
    name: *const c_char,
    _: c_int,
    out: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: SQLite calls with the VFS that was registered, and a name.
        let exists = unsafe { files(vfs)?.exists(text(name)?) };
        // SAFETY: and room for the answer.
        unsafe { out.write(c_int::from(exists)) };
        Ok(())
    })
}

/// Names are full as they are.
unsafe extern "C" fn full_path(
    _: *mut Vfs,
    name: *const c_char,
    len: c_int,
    out: *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: SQLite passes a name.
        let name = unsafe { text(name) }?.as_bytes();
        let room = usize::try_from(len).unwrap_or(0);
        if name.len() >= room {
            return Err(Code::CANTOPEN);
        }
        // SAFETY: SQLite passes room for `len` bytes, which is more than the name has.
        unsafe {
            out.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), name.len());
            out.add(name.len()).write(0);
        }
        Ok(())
    })
}

unsafe extern "C" fn randomness(vfs: *mut Vfs, len: c_int, out: *mut c_char) -> c_int {
    let filled = guard(|| {
        let len = usize::try_from(len).map_err(|_| Code::ERROR)?;
        // SAFETY: SQLite passes room for this many bytes.
        let bytes = unsafe { slice::from_raw_parts_mut(out.cast::<u8>(), len) };
        // SAFETY: SQLite calls with the VFS that was registered.
        unsafe { files(vfs) }?.random(bytes);
        Ok(())
    });
    if filled == OK { len } else { 0 }
}

unsafe extern "C" fn sleep(vfs: *mut Vfs, microseconds: c_int) -> c_int {
    guard(|| {
        let time = Duration::from_micros(u64::try_from(microseconds).unwrap_or(0));
        // SAFETY: SQLite calls with the VFS that was registered.
        unsafe { files(vfs) }?.sleep(time);
        Ok(())
    });
    microseconds
}

unsafe extern "C" fn time_ms(vfs: *mut Vfs, out: *mut i64) -> c_int {
    guard(|| {
        // SAFETY: SQLite calls with the VFS that was registered.
        let millis = unsafe { files(vfs) }?.unix_millis().saturating_add(JULIAN_MILLIS);
        // SAFETY: and room for the answer.
        unsafe { out.write(millis) };
        Ok(())
    })
}

unsafe extern "C" fn time(vfs: *mut Vfs, out: *mut c_double) -> c_int {
    let mut millis = 0;
    // SAFETY: as this method was called.
    let code = unsafe { time_ms(vfs, &raw mut millis) };
    // SAFETY: SQLite passes room for the answer.
    unsafe { out.write(millis as f64 / DAY_MILLIS) };
    code
}

unsafe extern "C" fn last_error(_: *mut Vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}
