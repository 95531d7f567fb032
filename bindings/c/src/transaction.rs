//! Transactions: reads and writes that happen at one moment, or not at all.

use esker::{Entry, Transaction};

use crate::bytes::{esker_bytes, needed, slice};
use crate::db::{durability, esker_db};
use crate::error::{Result, esker_code, esker_error, guard, release};
use crate::handle::{get, get_mut, give, handle, take};
use crate::keyspace::{answer, esker_keyspace};
use crate::range::{bounds, esker_entry, show};

/// A transaction, and the entry that the caller looks at.
#[derive(Debug)]
pub struct Open {
    transaction: Transaction,
    current: Entry,
}

/// Reads and writes of any keyspaces of one store that happen at one moment, or not at all. It
/// reads the store as it was when it began, and its own writes, which are not visible to others
/// before it is committed. One thread at a time may use it. Freed with `esker_transaction_commit`
/// or `esker_transaction_free`.
pub struct esker_transaction {
    _opaque: [u8; 0],
}

handle!(esker_transaction(Open) = b"ESK-tran");

/// Begins a transaction, without waiting.
///
/// # Safety
/// `db` is a store; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_transaction_begin(
    db: *const esker_db,
    transaction: *mut *mut esker_transaction,
    error: *mut *mut esker_error,
) -> esker_code {
    // SAFETY: by the caller's promise.
    unsafe { guard(error, || begin(transaction, || Ok(get(db)?.transaction()?))) }
}

/// Begins a transaction that holds the writers' turn: it waits until no other one holds it, and
/// reads what those have written. If all writes are made in such transactions, none ever conflicts.
///
/// # Safety
/// As for `esker_transaction_begin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_transaction_begin_write(
    db: *const esker_db,
    transaction: *mut *mut esker_transaction,
    error: *mut *mut esker_error,
) -> esker_code {
    // SAFETY: by the caller's promise.
    unsafe { guard(error, || begin(transaction, || Ok(get(db)?.write_transaction()?))) }
}

/// Puts what `begin` answers into `place`.
///
/// # Safety
/// `place` is null or can be written to.
unsafe fn begin(
    place: *mut *mut esker_transaction,
    begin: impl FnOnce() -> Result<Transaction>,
) -> Result {
    let place = needed(place, "transaction")?;
    let open = Open { transaction: begin()?, current: Entry::default() };
    // SAFETY: by the caller's promise.
    unsafe { place.put(give(open)) };
    Ok(())
}

/// As `esker_get`, as of the moment at which the transaction began, with its own writes applied.
///
/// # Safety
/// The handles are of the named kinds, `key` has the given length; the others are null or can be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_transaction_get(
    transaction: *const esker_transaction,
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    value: *mut esker_bytes,
    found: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        unsafe {
            answer(value, found, || {
                let transaction = &get(transaction)?.transaction;
                Ok(transaction.get(get(keyspace)?, slice(key, key_len, "key")?)?)
            })
        }
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The entry with the smallest key in `start` <= key < `end`, or with `from_back` the largest;
/// `found` says whether there is one. A null `start` or `end` is no bound. To read the entries of a
/// range in order, set `start` each time to the last key and a zero byte; a commit also checks that
/// no other writer has written between the keys that were passed.
///
/// # Safety
/// The handles are of the named kinds, `start` and `end` have the given lengths; the others are
/// null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_transaction_seek(
    transaction: *mut esker_transaction,
    keyspace: *const esker_keyspace,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
    from_back: bool,
    entry: *mut esker_entry,
    found: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let (entry, found) = (needed(entry, "entry")?, needed(found, "found")?);
        // SAFETY: by the caller's promise.
        let bounds = unsafe { bounds(start, start_len, end, end_len) }?;
        // SAFETY: by the caller's promise.
        let (open, keyspace) = unsafe { (get_mut(transaction)?, get(keyspace)?) };
        let mut range = open.transaction.range::<&[u8]>(keyspace, bounds)?;
        let next = if from_back { range.next_back() } else { range.next() }.transpose()?;
        drop(range);
        // SAFETY: by the caller's promise.
        unsafe {
            found.put(next.is_some());
            entry.put(show(&mut open.current, next));
        }
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Sets the value of `key`, when the transaction is committed.
///
/// # Safety
/// The handles are of the named kinds, `key` and `value` have the given lengths; `error` is null
/// or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_transaction_put(
    transaction: *mut esker_transaction,
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let (open, keyspace) = unsafe { (get_mut(transaction)?, get(keyspace)?) };
        // SAFETY: by the caller's promise.
        let (key, value) =
            unsafe { (slice(key, key_len, "key")?, slice(value, value_len, "value")?) };
        Ok(open.transaction.insert(keyspace, key, value)?)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Merges `operand` onto the value of `key`, when the transaction is committed: see `esker_merge`.
/// That reads nothing.
///
/// # Safety
/// As for `esker_transaction_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_transaction_merge(
    transaction: *mut esker_transaction,
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    operand: *const u8,
    operand_len: usize,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let (open, keyspace) = unsafe { (get_mut(transaction)?, get(keyspace)?) };
        // SAFETY: by the caller's promise.
        let (key, operand) =
            unsafe { (slice(key, key_len, "key")?, slice(operand, operand_len, "operand")?) };
        Ok(open.transaction.merge(keyspace, key, operand)?)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Removes `key`, when the transaction is committed.
///
/// # Safety
/// As for `esker_transaction_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_transaction_delete(
    transaction: *mut esker_transaction,
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let (open, keyspace) = unsafe { (get_mut(transaction)?, get(keyspace)?) };
        // SAFETY: by the caller's promise.
        Ok(open.transaction.remove(keyspace, unsafe { slice(key, key_len, "key") }?)?)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Removes all keys with `start` <= key < `end`, when the transaction is committed. That reads none
/// of them. A null `start` or `end` is no bound.
///
/// # Safety
/// As for `esker_transaction_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_transaction_delete_range(
    transaction: *mut esker_transaction,
    keyspace: *const esker_keyspace,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let (open, keyspace) = unsafe { (get_mut(transaction)?, get(keyspace)?) };
        // SAFETY: by the caller's promise.
        let keys = unsafe { bounds(start, start_len, end, end_len) }?;
        Ok(open.transaction.remove_range::<&[u8]>(keyspace, keys)?)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Applies the writes of a transaction if no other writer has since changed what it has read, and
/// frees it, whatever the code. `durability` is an `esker_durability`. `ESKER_CONFLICT`: nothing
/// was applied, run it again from its beginning.
///
/// # Safety
/// `transaction` is a transaction that is no longer in use; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_transaction_commit(
    transaction: *mut esker_transaction,
    durability: i32,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let transaction = unsafe { take(transaction) }?.transaction;
        match self::durability(durability)? {
            None => transaction.commit()?,
            Some(durability) => transaction.commit_with(durability)?,
        };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Frees a transaction without applying it. Null is ignored.
///
/// # Safety
/// `transaction` is null or a transaction that is no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_transaction_free(transaction: *mut esker_transaction) {
    // SAFETY: by the caller's promise.
    unsafe { release(transaction) }
}
