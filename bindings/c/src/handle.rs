//! What the pointers that C programs hold lead to.
//!
//! A handle is a heap allocation that begins with the number of its kind. The number is taken away
//! when the handle is given up, so that most uses of foreign, mixed-up and stale pointers are
//! errors and not crashes; all of them cannot be: memory that was given back may hold anything.

use crate::error::{Failure, Result};

/// A kind of handle: the type that C sees, which is only ever pointed to.
pub trait Handle {
    /// What there is behind it.
    type Value;
    /// The number that it begins with. Any eight bytes that memory seldom holds by chance.
    const KIND: u64;
    /// What it is called in messages.
    const NAME: &'static str;
}

/// What a handle of the kind `H` points to.
#[repr(C)]
struct Tagged<H: Handle> {
    kind: u64,
    value: H::Value,
}

/// What stands in place of the kind when a handle has been given up.
const GONE: u64 = 0;

/// Says what a handle leads to: the name in C, the value in Rust, the eight letters it begins with.
/// The type itself stands where cbindgen sees it.
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

/// Gives `value` to the caller.
pub(crate) fn give<H: Handle>(value: H::Value) -> *mut H {
    Box::into_raw(Box::new(Tagged::<H> { kind: H::KIND, value })).cast()
}

/// Whether `pointer` leads to a handle of the kind `H`.
///
/// # Safety
/// Null, or not aligned, or a pointer to eight bytes that can be read.
unsafe fn check<H: Handle>(pointer: *const H) -> Result<*mut Tagged<H>> {
    let name = H::NAME;
    if pointer.is_null() {
        return Err(Failure::invalid(format!("there is no {name}: the pointer is null")));
    }
    let tagged = pointer.cast::<Tagged<H>>().cast_mut();
    // SAFETY: it is aligned for the whole and so for the number, and by the caller's promise.
    if !tagged.is_aligned() || unsafe { (&raw const (*tagged).kind).read_volatile() } != H::KIND {
        let what = format!("this is no {name}, or it has been given up");
        return Err(Failure::invalid(what));
    }
    Ok(tagged)
}

/// What a handle leads to.
///
/// # Safety
/// As [`check`] asks for, and nobody gives it up or changes it during `'a`.
pub(crate) unsafe fn get<'a, H: Handle>(pointer: *const H) -> Result<&'a H::Value> {
    // SAFETY: by the caller's promise; the kind says that `give` has made it.
    unsafe { Ok(&(*check(pointer)?).value) }
}

/// What a handle leads to, to be changed.
///
/// # Safety
/// As [`check`] asks for, and nobody else uses it during `'a`.
pub(crate) unsafe fn get_mut<'a, H: Handle>(pointer: *mut H) -> Result<&'a mut H::Value> {
    // SAFETY: by the caller's promise; the kind says that `give` has made it.
    unsafe { Ok(&mut (*check(pointer.cast_const())?).value) }
}

/// Takes a handle back.
///
/// # Safety
/// As [`check`] asks for, and nobody uses it any more.
pub(crate) unsafe fn take<H: Handle>(pointer: *mut H) -> Result<H::Value> {
    // SAFETY: by the caller's promise; the kind says that `give` has made it and that it has not
    // been taken back, so that it is a box's.
    unsafe {
        let tagged = check(pointer.cast_const())?;
        (&raw mut (*tagged).kind).write_volatile(GONE);
        Ok(Box::from_raw(tagged).value)
    }
}

/// Takes a handle back and lets go of it; of null and of what is no handle nothing.
///
/// # Safety
/// As [`take`].
pub(crate) unsafe fn free<H: Handle>(pointer: *mut H) {
    // SAFETY: by the caller's promise.
    drop(unsafe { take(pointer) });
}
