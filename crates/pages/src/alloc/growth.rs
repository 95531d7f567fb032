//! Room in the file: free slots and segments, and the growth of the file.

use esker_device::Purpose;

use crate::engine::{Core, Engine};
use crate::error::{Error, Result};
use crate::options::{Options, SEGMENT_BYTES_MAX};
use crate::place::{Class, Sector};
use crate::version::node::{NODE_BYTES_MAX, NODE_BYTES_MIN};
use crate::version::tree::LEAF;

impl Engine {
    /// Takes `count` slots; the file grows where there are not enough in addition to `keep`
    /// segments.
    pub(crate) fn take_slots(
        &self,
        core: &mut Core,
        class: Class,
        count: usize,
        keep: u32,
    ) -> Result<Vec<Sector>> {
        self.ensure_slots(core, class, count as u64, keep)?;
        let mut slots = Vec::with_capacity(count);
        for _ in 0..count {
            let slot = core.space.take(class);
            slots.push(slot.ok_or_else(|| Error::Full { reason: "no slot is free".to_owned() })?);
        }
        Ok(slots)
    }

    /// Makes sure that `count` slots can be taken, and `keep` segments are left.
    pub(crate) fn ensure_slots(
        &self,
        core: &mut Core,
        class: Class,
        count: u64,
        keep: u32,
    ) -> Result<()> {
        let missing = count.saturating_sub(core.space.available(class, keep));
        let per_segment = core.space.segment_bytes() / class.bytes();
        self.grow(core, missing.div_ceil(per_segment.max(1)))
    }

    /// Makes sure that `count` whole segments are free.
    pub(crate) fn ensure_segments(&self, core: &mut Core, count: u32) -> Result<()> {
        self.grow(core, count.saturating_sub(core.space.free_segments()).into())
    }

    /// The number of segments that commits leave free for a checkpoint of the present contents.
    pub(crate) fn set_aside(&self, core: &Core) -> u32 {
        aside(core.live_slots, core.delta_bytes, self.segment_bytes) + aside_for_held(core)
    }

    /// Adds `count` segments, filled with zeros: what is rewritten later costs a fraction of what
    /// grows a file. Without a thread that sees to room, a large file gets some more.
    pub(crate) fn grow(&self, core: &mut Core, count: u64) -> Result<()> {
        // Before the file grows, what is to be cut off serves as well.
        let opened = core.space.open_some(u32::try_from(count).unwrap_or(u32::MAX));
        let count = count - u64::from(opened);
        if count == 0 {
            return Ok(());
        }
        let most = core.space.growable().into();
        if count > most {
            return Err(Error::Full { reason: "the file would pass 2 TiB".to_owned() });
        }
        let is_exact = core.has_thread || !self.allocation.grows_ahead() || core.mover.is_any();
        let ahead = if is_exact { 0 } else { self.spare_segments(core) };
        for added in 0..count.max(ahead).min(most) {
            match self.add_segment(core) {
                Err(_) if added >= count => break,
                Err(error) => {
                    // A file that cannot grow is not made shorter at the price of a commit.
                    core.space.open_all();
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Adds a segment of zeros.
    fn add_segment(&self, core: &mut Core) -> Result<()> {
        let zeros = vec![0; core.space.segment_bytes() as usize];
        let start = core.space.segment_offset(core.space.segment_count());
        self.media.write(start, &zeros, Purpose::Gc)?;
        core.space.add_segments(1);
        self.counters.filled.add(zeros.len() as u64);
        Ok(())
    }

    /// The number of segments that the thread keeps free, so that commits need not wait for growth.
    fn spare_segments(&self, core: &Core) -> u64 {
        growth_ahead(core.space.segment_count(), self.segment_bytes.into())
    }

    /// Room for pages, in segments.
    fn room(&self, core: &Core) -> u64 {
        let page_size = self.versions.lock().newest().1.page_size;
        let Some(class) = Class::holding(page_size as usize) else { return 0 };
        core.space.available(class, 0) * class.bytes() / core.space.segment_bytes()
    }

    /// Asks the thread for room where little is left.
    pub(crate) fn grow_soon(&self, core: &mut Core) {
        let is_little = self.room(core) < self.spare_segments(core) / 2;
        let is_asked = core.is_growth_wanted || core.is_growth_in_vain;
        let is_for_it = core.has_thread && self.allocation.grows_ahead() && !core.mover.is_any();
        if is_for_it && is_little && !is_asked {
            core.is_growth_wanted = true;
            self.wake.notify_all();
        }
    }

    /// Grows the file while commits continue, by one segment at a time.
    pub(crate) fn grow_in_background(&self) -> Result<()> {
        loop {
            {
                let mut core = self.core.lock();
                let is_enough = self.room(&core) >= self.spare_segments(&core);
                if is_enough || core.mover.is_any() || core.is_closed || self.is_read_only() {
                    return Ok(());
                }
                self.add_segment(&mut core)?;
            }
            // So that no commit's sync has more than one of them to write.
            self.sync_file()?;
        }
    }
}

/// The number of segments that are kept free for a checkpoint, from the number of live slots and
/// the bytes of deltas: for its log, for all nodes of the map, and for the first node of each
/// possible size.
fn aside(live_slots: i64, delta_bytes: i64, segment_bytes: u32) -> u32 {
    let bytes = 2 * (nodes(live_slots) * NODE_BYTES_MIN as i64 + delta_bytes.max(0));
    let sizes = segment_bytes.min(NODE_BYTES_MAX as u32) / NODE_BYTES_MIN as u32;
    let larger = if delta_bytes > 0 { sizes.max(1).ilog2() } else { 0 };
    let larger = larger.min(u32::try_from(nodes(live_slots)).unwrap_or(u32::MAX));
    3 + larger + (bytes / i64::from(segment_bytes)) as u32
}

/// The number of segments that pages leave free, so that there is room for a checkpoint on a full
/// device however the deltas grow: the nodes that live then are larger by the number of bytes that
/// is set aside for them, and their checkpoint needs the same number of bytes again.
pub(crate) fn aside_for_pages(core: &Core, options: &Options, segment_bytes: u32) -> u32 {
    let most = nodes(core.live_slots) * NODE_BYTES_MAX as i64;
    let deltas = i64::try_from(options.delta_bytes).unwrap_or(i64::MAX).min(most);
    let of = |deltas| aside(core.live_slots, deltas, segment_bytes);
    2 * of(deltas) - of(0) + aside_for_held(core)
}

/// The number of segments for the record that a checkpoint of a shared store writes first.
fn aside_for_held(core: &Core) -> u32 {
    if core.shared.is_some() { 3 } else { 0 }
}

/// The number of free segments that are reserved for operations that do not make the database grow.
pub(crate) fn slack(core: &Core) -> u32 {
    2 + core.space.segment_count() / 32 + for_log_before(core)
}

/// The number of segments that the log before will have besides those it has now: where processes
/// share the store, it stays for one checkpoint more.
fn for_log_before(core: &Core) -> u32 {
    core.shared.as_ref().map_or(0, |shared| 3_u32.saturating_sub(shared.log_before.len() as u32))
}

/// The number of leaves in a map of this many slots.
fn nodes(live_slots: i64) -> i64 {
    live_slots.max(0) / LEAF as i64 + 1
}

/// The number of segments that a file of `count` segments grows by where it must: a thirty-second
/// of it, up to 4 MiB, because the cost of one growth in the file system equals that of several
/// commits.
fn growth_ahead(count: u32, segment_bytes: u64) -> u64 {
    let most = u64::from(SEGMENT_BYTES_MAX) / segment_bytes;
    u64::from(count / 32).min(most)
}
