//! The table of the handles that C programs hold.
//!
//! A handle is not an address. It is a number in the form of a pointer: a place in the table of
//! this module, and the generation of that place. A generation is used for one handle. So a freed
//! handle, a pointer to something else and a handle of another kind are detected by reading the
//! table alone, whatever has become of the memory that they point to. (After 2^31 handles a place
//! begins again; a place waits for a thousand others before it is used again.)
//!
//! Thread safety: everything may be called from any thread. The table grows and never shrinks, and
//! looking a handle up takes no lock.
//! Invariant (odd while used): a place's generation is odd exactly while it holds a value; the
//! thread that makes it even takes the value, and only one can.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use self::planted::Bug;
use crate::error::{Failure, Result};

/// A kind of handle: the type that C sees, which is only ever pointed to.
pub trait Handle {
    /// The value behind a handle.
    type Value;
    /// The number of the kind.
    const KIND: u64;
    /// The name of the kind in messages.
    const NAME: &'static str;
}

/// Declares the value of a handle: the name in C, the value in Rust, eight letters for the kind.
/// The type itself is declared where cbindgen sees it.
macro_rules! handle {
    ($name:ident($value:ty) = $kind:literal) => {
        impl $crate::handle::Handle for $name {
            type Value = $value;
            const KIND: u64 = u64::from_le_bytes(*$kind);
            const NAME: &'static str = stringify!($name);
        }
    };
}
pub(crate) use handle;

/// Bits of a handle that say the place; the others say the generation.
const PLACE_BITS: u32 = usize::BITS / 2;
/// Places of the first chunk; each further one has twice as many as the one before.
const FIRST_PLACES: usize = 64;
const CHUNKS: usize = 32;
/// This many places are unused before one is used again.
const WAITING: usize = 1024;

/// The value of a handle.
#[derive(Debug, Default)]
struct Place {
    generation: AtomicUsize,
    kind: AtomicU64,
    value: AtomicPtr<()>,
}

/// Places that were used before, and the first that never was.
#[derive(Debug)]
struct Unused {
    places: VecDeque<usize>,
    next: usize,
}

static TABLE: [OnceLock<Box<[Place]>>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];
static UNUSED: Mutex<Unused> = Mutex::new(Unused { places: VecDeque::new(), next: 0 });

/// The chunk that a place is in, and where in it.
const fn chunk_of(place: usize) -> (usize, usize) {
    let chunk = (place / FIRST_PLACES + 1).ilog2() as usize;
    (chunk, place + FIRST_PLACES - (FIRST_PLACES << chunk))
}

/// The place, if the table has got so far.
fn at(place: usize) -> Option<&'static Place> {
    let (chunk, within) = chunk_of(place);
    TABLE.get(chunk)?.get()?.get(within)
}

/// A place for a new handle.
fn unused_place() -> Option<(usize, &'static Place)> {
    let mut unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = if unused.places.len() > WAITING { unused.places.pop_front() } else { None };
    let number = waited.unwrap_or(unused.next);
    if waited.is_none() {
        let (chunk, _) = chunk_of(number);
        let places = || (0..FIRST_PLACES << chunk).map(|_| Place::default()).collect();
        TABLE.get(chunk)?.get_or_init(places);
        unused.next += 1;
    }
    at(number).map(|place| (number, place))
}

/// Makes a handle for `value`. Null when there are more handles than a pointer can distinguish.
pub(crate) fn give<H: Handle>(value: H::Value) -> *mut H {
    let found = unused_place().filter(|(number, _)| *number >> PLACE_BITS == 0);
    let Some((number, place)) = found else { return ptr::null_mut() };
    let generation = place.generation.load(Ordering::Relaxed).wrapping_add(1);
    place.kind.store(H::KIND, Ordering::Relaxed);
    place.value.store(Box::into_raw(Box::new(value)).cast(), Ordering::Relaxed);
    // A thread that sees the generation sees the rest.
    place.generation.store(generation & (usize::MAX >> PLACE_BITS), Ordering::Release);
    ptr::without_provenance_mut(generation << PLACE_BITS | number)
}

/// The place of a handle of the kind `H`, and the generation that it has.
fn check<H: Handle>(handle: *const H) -> Result<(usize, &'static Place, usize)> {
    let name = H::NAME;
    if handle.is_null() {
        return Err(Failure::invalid(format!("there is no {name}: the pointer is null")));
    }
    let number = handle.addr() & (usize::MAX >> PLACE_BITS);
    let generation = handle.addr() >> PLACE_BITS;
    let is_held = |place: &&Place| {
        let current = place.generation.load(Ordering::Acquire);
        let is_current = current == generation || planted::is(Bug::GenerationIgnored);
        let is_kind = place.kind.load(Ordering::Relaxed) == H::KIND;
        generation % 2 == 1
            && current % 2 == 1
            && is_current
            && (is_kind || planted::is(Bug::KindIgnored))
    };
    match at(number).filter(is_held) {
        Some(place) => Ok((number, place, generation)),
        None => Err(Failure::invalid(format!("this is not a {name}, or it has been freed"))),
    }
}

/// The value of a handle.
///
/// # Safety
/// No other code frees it or changes it during `'a`.
pub(crate) unsafe fn get<'a, H: Handle>(handle: *const H) -> Result<&'a H::Value> {
    let (_, place, _) = check(handle)?;
    // SAFETY: the place holds a value of this kind (its generation is odd), which `give` has made;
    // by the caller's promise it stays.
    unsafe { Ok(&*place.value.load(Ordering::Relaxed).cast::<H::Value>()) }
}

/// The value of a handle, mutable.
///
/// # Safety
/// No other code uses it during `'a`.
pub(crate) unsafe fn get_mut<'a, H: Handle>(handle: *mut H) -> Result<&'a mut H::Value> {
    let (_, place, _) = check(handle.cast_const())?;
    // SAFETY: as in `get`; by the caller's promise no other code has it.
    unsafe { Ok(&mut *place.value.load(Ordering::Relaxed).cast::<H::Value>()) }
}

/// Takes a handle back: the first time, and never again.
///
/// # Safety
/// No code uses it at this moment.
pub(crate) unsafe fn take<H: Handle>(handle: *mut H) -> Result<H::Value> {
    let (number, place, generation) = check(handle.cast_const())?;
    let value = place.value.load(Ordering::Relaxed).cast::<H::Value>();
    let even = generation.wrapping_add(1) & (usize::MAX >> PLACE_BITS);
    let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
    if place.generation.compare_exchange(generation, even, success, failure).is_err() {
        return Err(Failure::invalid(format!("this {} has been freed", H::NAME)));
    }
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner).places.push_back(number);
    // SAFETY: `give` has made it of a box, and only the thread that changed the generation
    // comes here.
    Ok(*unsafe { Box::from_raw(value) })
}

/// Takes a handle back and drops it; does nothing for null and for what is no handle.
///
/// # Safety
/// As [`take`].
pub(crate) unsafe fn free<H: Handle>(handle: *mut H) {
    // SAFETY: by the caller's promise.
    drop(unsafe { take(handle) });
}

mod planted;
#[cfg(test)]
mod tests;
