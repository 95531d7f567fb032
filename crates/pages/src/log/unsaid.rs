//! Processes that read a store which none of them has written.
//!
//! The first of them makes the meeting, and no state is said in it. Each applies the log in memory,
//! as an opening for reading does; all find the same, because no byte of the file changes. What
//! they read is in their cells.
//!
//! The first process that writes takes a checkpoint of what it has in memory, as after a process
//! that died ([`crate::log::handover`]): in an epoch that none of the others knows, so that they
//! load it, and keep what they read. From then on the end of the log is said.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_device::DeviceFile;
use esker_device::process::Process;
use esker_device::shared::Shared;

use crate::engine::{Engine, Turns};
use crate::error::{Error, Result};
use crate::log::creation::find_in;
use crate::log::hold::check_sharing;
use crate::log::joining::{check_meeting, follow_from};
use crate::log::opening::allocation;
use crate::log::record::{Record, Unlisted};
use crate::log::recovery::recover;
use crate::log::scan::scan;
use crate::log::shared::LogEnd;
use crate::log::superblock::{Found, Superblock};
use crate::media::{FileMedia, Media};
use crate::meeting::layout::{is_of, make};
use crate::meeting::member::Member;
use crate::meeting::state::is_silent;
use crate::options::Options;

/// Opens what is in `file`, which no process of the meeting has written; the first one, where there
/// are no others, makes the meeting. Writes nothing to the file. `None` for what such processes
/// cannot read together: a store that is not made yet, one whose pages move, and for a process that
/// may not write one with a prepared transaction, which would stay undecided.
///
/// Cost: that of an opening, or of two after a crash.
///
/// # Errors
/// As [`crate::PageStore::open_read_only`]; [`Error::Locked`] for a meeting that is not of this
/// store or has no room; [`Error::Busy`] where the file changes meanwhile.
pub(crate) fn open_unsaid(
    file: Arc<dyn DeviceFile>,
    options: Options,
    shared: Arc<dyn Shared>,
    turns: Turns,
    has_others: bool,
) -> Result<Option<Arc<Engine>>> {
    options.check()?;
    check_meeting(&*shared)?;
    let locked = |how| Err(Error::Locked { file: file.name().to_owned(), how });
    let media = FileMedia::new(Arc::clone(&file), options.segment_bytes);
    let Found::Superblock(block) = find_in(&media)? else { return Ok(None) };
    if check_sharing(block.allocation).is_err() {
        return Ok(None);
    }
    if !has_others {
        make(&*shared, block.store);
    } else if !is_of(&*shared, block.store) {
        return locked("open in processes whose shared file is damaged: close it in all of them");
    }
    let Some(member) = Member::take(shared, block.store, Process::current(), false)? else {
        return locked("open in 120 processes: close one");
    };
    let media = FileMedia::new(Arc::clone(&file), block.segment_bytes);
    let (number, has_prepared) = end_of_log(&media, &block)?;
    if has_prepared && !turns.may_write() {
        return Ok(None);
    }
    let end = LogEnd { epoch: block.epoch, number };
    let engine = follow_from(&file, &options, end)?.ok_or(Error::Busy)?;
    {
        let mut core = engine.core.lock();
        core.is_for_many = true;
        if let Some(shared) = &mut core.shared {
            // No process reads anything that is not in the file.
            (shared.is_complete, shared.unlisted) = (true, Unlisted::default());
        }
    }
    engine.is_unsaid.store(true, Ordering::SeqCst);
    let (member, turns) = (Some(Arc::new(member)), Some(turns));
    Ok(Some(Arc::new(Engine { member, turns, ..engine })))
}

/// The number of the frame after the last that takes effect, and whether a transaction is prepared
/// then. Where the store was closed in order nothing but the log is read.
fn end_of_log(media: &dyn Media, block: &Superblock) -> Result<(u64, bool)> {
    let records = scan(media, block)?.records;
    if records.iter().all(|(_, record)| matches!(record, Record::Kept(_))) {
        return Ok((records.last().map_or(block.number, |(number, _)| number + 1), false));
    }
    let (recovered, _) = recover(media, block, allocation(block.allocation), true)?;
    Ok((recovered.core.log.number, recovered.core.prepared.is_some()))
}

impl Engine {
    /// Whether no process of the meeting has written the store: then what is in memory is all there
    /// is. One load where another one is known to have written it.
    pub(crate) fn is_unsaid(&self, member: &Member) -> bool {
        if !self.is_unsaid.load(Ordering::SeqCst) {
            return false;
        }
        let is_unsaid = is_silent(member.shared(), member.store());
        if !is_unsaid {
            self.is_unsaid.store(false, Ordering::SeqCst);
        }
        is_unsaid
    }
}
