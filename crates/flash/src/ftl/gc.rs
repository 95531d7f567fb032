//! Garbage collection: valid pages are moved out of a victim, and the victim is erased.

use super::pool::{Pool, Stream};
use super::wear;
use crate::error::{Error, Result};
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

/// Reclaims blocks of a domain until the stream can take a page.
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
    if pool.has_open_page(domain, stream) || pool.may_open(domain) {
        return Ok(());
    }
    // The request waits for its die, which is busy until then, and not for the copies themselves.
    let outer = nand.open_scope(Urgency::Background);
    let done = reclaim(nand, pool, owners, domain);
    nand.close_scope(outer);
    done
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
    while !pool.may_open(domain) {
        let full = || Error::Full(format!("no block of die {domain} has an invalid page"));
        let before = pool.room(domain);
        let victim = pool.victim(nand, domain).ok_or_else(full)?;
        collect(nand, pool, owners, victim, Cause::Gc)?;
        if pool.room(domain) <= before {
            fruitless += 1;
            if fruitless > blocks.saturating_mul(4) {
                return Err(full());
            }
        }
        if let Some(cold) = wear::due(nand, pool, domain, victim) {
            collect(nand, pool, owners, cold, Cause::Wear)?;
        }
    }
    Ok(())
}

/// Empties a full block and erases it.
///
/// # Errors
/// [`Error::Full`] where its valid pages have no room, with nothing changed; those of the
/// operations.
pub fn collect<N: Nand, O: Owners<N>>(
    nand: &mut N,
    pool: &mut Pool,
    owners: &mut O,
    victim: BlockId,
    cause: Cause,
) -> Result<()> {
    let domain = nand.geometry().die_of(victim);
    if u64::from(pool.valid(victim)) > pool.room(domain) {
        return Err(Error::Full(format!("die {domain} has no room to move a block's pages")));
    }
    pool.begin_collection(victim);
    let (first, pages) = (nand.geometry().first_page(victim).0, nand.geometry().pages_per_block());
    let stream = pool.gc_stream();
    let forgets_owners = planted::is(Bug::GcForgetsOwner);
    let mut left = pool.valid(victim);
    for page in (first..first + pages).map(Ppn) {
        if left == 0 {
            break;
        }
        if !owners.is_valid(page) {
            continue;
        }
        let to = pool.take(domain, stream)?;
        let spare = nand.copy(page, to, cause)?;
        if !forgets_owners {
            owners.moved(page, to, &spare)?;
        }
        left -= 1;
    }
    pool.emptied(victim, left)?;
    owners.before_erase(nand, pool, victim)?;
    nand.erase(victim, cause)?;
    pool.release(victim, nand.erase_count(victim))
}
