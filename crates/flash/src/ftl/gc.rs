//! Garbage collection: valid pages are moved out of a victim, and the victim is erased.
//!
//! It goes on a few pages at a time, with each page that a stream takes, while the domain is short
//! of free blocks ([`Pool::is_short`]), at the pace of `collecting`. Only where a stream has no
//! page left and may open no block, victims are emptied at once.

use super::collecting::Collecting;
use super::pool::{Pool, Stream};
use super::wear;
use crate::error::{Error, Result, broken};
use crate::nand::{BlockId, Cause, Nand, Ppn, Spare, Urgency};
use crate::planted::{self, Bug};

/// What garbage collection asks a layer: who owns a page.
pub trait Owners<N: Nand> {
    /// Whether the layer still needs this page.
    fn is_valid(&self, page: Ppn) -> bool;

    /// The valid page `from` was copied to `to`: the owner is at `to` from now on.
    ///
    /// # Errors
    /// A spare area that is not the owner's.
    fn moved(&mut self, from: Ppn, to: Ppn, spare: &Spare) -> Result<()>;

    /// All pages of the victim were moved, and it is erased next. What is durable and leads to
    /// pages of the victim must be written anew here.
    ///
    /// # Errors
    /// Those of the operations that this takes.
    fn before_erase(&mut self, nand: &mut N, pool: &mut Pool, victim: BlockId) -> Result<()> {
        let _ = (nand, pool, victim);
        Ok(())
    }
}

/// Collects garbage of a domain before the stream takes a page: a few pages of a victim, or if the
/// stream has no page, victims until it has one.
///
/// # Errors
/// [`Error::Full`] where nothing can be reclaimed, and those of the operations.
#[inline]
pub fn make_room<N: Nand, O: Owners<N>>(
    nand: &mut N,
    pool: &mut Pool,
    owners: &mut O,
    domain: u32,
    stream: Stream,
) -> Result<()> {
    if !pool.is_short(domain) && pool.collecting(domain).is_none() {
        return Ok(());
    }
    // The request waits for its die, which is busy until then, and not for the copies themselves.
    let outer = nand.open_scope(Urgency::Background);
    let done = step(nand, pool, owners, domain).and_then(|()| {
        let has_room = pool.has_open_page(domain, stream) || pool.may_open(domain);
        if has_room { Ok(()) } else { reclaim(nand, pool, owners, domain) }
    });
    nand.close_scope(outer);
    done
}

/// Does the copies that are due with a page of the host, and begins with a victim if none is being
/// emptied.
fn step<N: Nand, O: Owners<N>>(
    nand: &mut N,
    pool: &mut Pool,
    owners: &mut O,
    domain: u32,
) -> Result<()> {
    if pool.collecting(domain).is_none()
        && let Some(victim) = pool.victim(nand, domain)
        && pool.valid(victim) < nand.geometry().pages_per_block()
    {
        begin(pool, domain, victim, Cause::Gc);
    }
    let due = pool.collecting(domain).as_mut().map(Collecting::due);
    due.map_or(Ok(()), |due| advance(nand, pool, owners, domain, due))
}

fn reclaim<N: Nand, O: Owners<N>>(
    nand: &mut N,
    pool: &mut Pool,
    owners: &mut O,
    domain: u32,
) -> Result<()> {
    let blocks = nand.geometry().blocks_per_die();
    // A victim without an invalid page gains nothing. A policy that takes such blocks comes to
    // another one after all of them; if not, there is none.
    let mut fruitless = 0;
    advance(nand, pool, owners, domain, u32::MAX)?;
    while !pool.may_open(domain) {
        let full = || Error::Full(format!("no block of die {domain} has an invalid page"));
        let before = pool.room(domain);
        if pool.collecting(domain).is_none() {
            let victim = pool.victim(nand, domain).ok_or_else(full)?;
            if !begin(pool, domain, victim, Cause::Gc) {
                let what = format!("die {domain} has no room to move a block's pages");
                return Err(Error::Full(what));
            }
        }
        advance(nand, pool, owners, domain, u32::MAX)?;
        if pool.room(domain) <= before {
            fruitless += 1;
            if fruitless > blocks.saturating_mul(4) {
                return Err(full());
            }
        }
    }
    Ok(())
}

/// Begins to empty a full block. False, and nothing is changed, where its valid pages have no room.
fn begin(pool: &mut Pool, domain: u32, victim: BlockId, cause: Cause) -> bool {
    let has_room = u64::from(pool.valid(victim)) <= pool.room(domain);
    if has_room {
        pool.begin_collection(victim, cause);
    }
    has_room
}

/// Moves so many pages of the block that is being emptied, if there is one. When it is empty, it is
/// erased, and wear levelling may begin with another one.
fn advance<N: Nand, O: Owners<N>>(
    nand: &mut N,
    pool: &mut Pool,
    owners: &mut O,
    domain: u32,
    copies: u32,
) -> Result<()> {
    let Some(Collecting { block: victim, cause, mut next, .. }) = *pool.collecting(domain) else {
        return Ok(());
    };
    let (first, pages) = (nand.geometry().first_page(victim).0, nand.geometry().pages_per_block());
    let (stream, forgets_owners) = (pool.gc_stream(), planted::is(Bug::GcForgetsOwner));
    let mut left = copies;
    while pool.valid(victim) > 0 {
        if next == pages {
            return broken(format!("{victim} has valid pages that its layer does not know"));
        }
        let page = Ppn(first + next);
        let is_valid = owners.is_valid(page);
        if is_valid && left == 0 {
            break;
        }
        next += 1;
        if is_valid {
            left -= 1;
            let to = pool.take(domain, stream)?;
            let spare = nand.copy(page, to, cause)?;
            if !forgets_owners {
                owners.moved(page, to, &spare)?;
            }
            pool.invalidate(page);
        }
    }
    if pool.valid(victim) > 0 {
        if let Some(collecting) = pool.collecting(domain) {
            collecting.next = next;
        }
        return Ok(());
    }
    owners.before_erase(nand, pool, victim)?;
    nand.erase(victim, cause)?;
    *pool.collecting(domain) = None;
    pool.release(victim, nand.erase_count(victim))?;
    if cause == Cause::Gc
        && let Some(cold) = wear::due(nand, pool, domain, victim)
    {
        begin(pool, domain, cold, Cause::Wear);
    }
    Ok(())
}
