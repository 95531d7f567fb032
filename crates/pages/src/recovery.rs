//! Opening a store: the newest checkpoint, then the log's records in order up to the first gap.
//!
//! A record is a commit when its frames are whole and, unless it is known to be durable, its pages
//! match their checksums: a commit is written in no order within itself. Opening decides this once:
//! if it found a record, it takes a checkpoint before anything is read, so that no later opening
//! decides otherwise. An opening that finds none writes nothing until the first commit, and an
//! opening for reading never writes ([`crate::read_only`]).
//!
//! No number in the file is trusted: every slot that a node or a record names must be in the file,
//! aligned, and named only once.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use esker_device::process::Process;
use esker_device::{DeviceFile, Purpose};
use esker_format::ids::StoreId;
use parking_lot::{Condvar, Mutex};

use crate::checkpoint::{EPOCHS_TRIED_MAX, NODE_BYTES_MIN, node_class};
use crate::collect::Mover;
use crate::engine::{Core, Engine, Prepared};
use crate::error::{Error, Result, corrupt, damaged, invalid};
use crate::log::{self, Log, Scan};
use crate::map::{Inner, Map, Mapping, Node, NodeRef, Releases, Root};
use crate::media::{FileMedia, Media};
use crate::node::{RootRef, decode_inner, decode_leaf, decode_roots, encode_roots};
use crate::options::{Allocation, Options};
use crate::planted::{self, Bug};
use crate::read_only::Gate;
use crate::record::{Changes, Record};
use crate::space::{Class, Sector, Space};
use crate::stats::Counters;
use crate::superblock::{FORMAT, Found, SUPERBLOCKS_BYTES, Superblock, find, first_bytes};
use crate::versions::{Replaced, Versions};

/// A random number, for identities only.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// The media of a file for code that fills segments in order, given the bytes of a segment.
type MakeMedia = fn(&Arc<dyn DeviceFile>, u32) -> Arc<dyn Media>;

/// Opens what is in `file`, or makes a new store where there is nothing.
pub(crate) fn open(file: Arc<dyn DeviceFile>, options: Options) -> Result<Arc<Engine>> {
    open_on(file, options, |file, bytes| Arc::new(FileMedia::new(Arc::clone(file), bytes)))
}

/// As [`open`], with another idea of the file's blocks.
pub(crate) fn open_on(
    file: Arc<dyn DeviceFile>,
    options: Options,
    media: MakeMedia,
) -> Result<Arc<Engine>> {
    options.check()?;
    let Found::Superblock(block) = find_in(&*file)? else {
        check_new(&*file, &options)?;
        return create(file, options, media);
    };
    let media = media(&file, block.segment_bytes);
    let (engine, found) = load(Disk { file, media, gate: None }, options, &block)?;
    if planted::is(Bug::LogWrittenOn) {
        engine.core.lock().is_log_ours = true;
    } else if found {
        decide_once(&engine)?;
    }
    Ok(engine)
}

/// Opens what is in `file` and writes nothing: what a crash left to be done is done in memory, and
/// where there is nothing, it is an empty database.
pub(crate) fn open_to_read(file: Arc<dyn DeviceFile>, options: Options) -> Result<Arc<Engine>> {
    options.check()?;
    let found = find_in(&*file)?;
    if found == Found::Nothing {
        check_new(&*file, &options)?;
    }
    let gate = Arc::new(Gate::new(file, found));
    let file: Arc<dyn DeviceFile> = Arc::clone(&gate) as _;
    let disk = |bytes| {
        let media = Arc::new(FileMedia::new(Arc::clone(&file), bytes));
        Disk { file, media, gate: Some(gate) }
    };
    match found {
        Found::Superblock(block) => {
            load(disk(block.segment_bytes), options, &block).map(|(engine, _)| engine)
        }
        _ => Ok(empty(disk(options.segment_bytes), options)),
    }
}

/// The kind of a file: a store, or, by its first bytes, one that is yet to be made; [`check_new`]
/// looks at the others.
pub(crate) fn find_in(file: &dyn DeviceFile) -> Result<Found> {
    let len = file.len()?;
    let mut head = vec![0; (len as usize).min(SUPERBLOCKS_BYTES)];
    file.read_at(0, &mut head, Purpose::Recovery)?;
    let name = || file.name().to_owned();
    match find(&head) {
        found @ (Found::Superblock(_) | Found::Nothing) => Ok(found),
        Found::Foreign(what) => Err(Error::Foreign { file: name(), what }),
        Found::Newer(found) => Err(Error::TooNew { file: name(), found, supported: FORMAT }),
        Found::Damaged => {
            Err(corrupt(file.name(), 0, "the newest copies of the superblock are lost"))
        }
    }
}

/// Fails unless `file`, whose first bytes are zeros, is what an interrupted creation with these
/// options leaves before its first superblock is whole: empty, or zeros to its end, no longer than
/// [`new_bytes`], except for the list of roots and one copy. Anything else is another file, or a
/// store that has lost its first bytes.
pub(crate) fn check_new(file: &dyn DeviceFile, options: &Options) -> Result<()> {
    let foreign = |what| Err(Error::Foreign { file: file.name().to_owned(), what });
    let len = file.len()?;
    if planted::is(Bug::HeadIsEnough) {
        return Ok(());
    }
    if len > new_bytes(options.segment_bytes) {
        return foreign(
            "longer than a new store and begins with zeros: it is no page store, or one whose \
             first bytes are lost; restore it from a copy, or choose another file",
        );
    }
    let roots = encode_roots(&[RootRef::first(options.page_size)]);
    let mut block = vec![0; NODE_BYTES_MIN];
    for at in (0..len).step_by(NODE_BYTES_MIN) {
        let part = usize::try_from(len - at).unwrap_or(usize::MAX).min(NODE_BYTES_MIN);
        let block = block.get_mut(..part).unwrap_or_default();
        file.read_at(at, block, Purpose::Recovery)?;
        let superblock = if at < SUPERBLOCKS_BYTES as u64 { first_bytes(block) } else { 0 };
        let rest = block.strip_prefix(roots.as_slice()).unwrap_or(block);
        let rest = rest.get(superblock..).unwrap_or_default();
        if rest.iter().any(|byte| *byte != 0) {
            return foreign(
                "not empty and begins with zeros: it is no page store, or one whose first bytes \
                 are lost; restore it from a copy, or choose another file",
            );
        }
    }
    Ok(())
}

/// Bytes of zeros that a new store begins as: the superblocks, the first list of roots, and the
/// log, with what its first checkpoint keeps free.
fn new_bytes(segment_bytes: u32) -> u64 {
    u64::from(NEW_SEGMENTS) * u64::from(segment_bytes)
}

/// The file of a store.
struct Disk {
    file: Arc<dyn DeviceFile>,
    media: Arc<dyn Media>,
    gate: Option<Arc<Gate>>,
}

fn engine(
    disk: Disk,
    options: Options,
    block: &Superblock,
    mut versions: Versions,
    releases: Releases,
    mut core: Core,
) -> Arc<Engine> {
    if block.allocation == Allocation::Segment {
        versions.let_pages_move();
        core.space.fill_in_order();
    }
    Arc::new(Engine {
        process: Process::current(),
        file: disk.file,
        media: disk.media,
        gate: disk.gate,
        options,
        store: block.store,
        segment_bytes: block.segment_bytes,
        versions: Mutex::new(versions),
        core: Mutex::new(core),
        has_writer: AtomicBool::new(false),
        spare: Mutex::default(),
        poison: OnceLock::new(),
        releases,
        counters: Counters::default(),
        wake: Condvar::new(),
    })
}

fn core_of(space: Space, log: Log, next_epoch: u64) -> Core {
    Core {
        space,
        log,
        is_log_ours: false,
        next_epoch,
        durable: 0,
        unsynced_bytes: 0,
        dead: Vec::new(),
        retired: Vec::new(),
        mover: Mover::Nobody,
        roots: Vec::new(),
        roots_at: NodeRef::default(),
        named: Default::default(),
        prepared: None,
        delta_bytes: 0,
        live_slots: 0,
        is_flush_wanted: false,
        is_checkpoint_wanted: false,
        is_growth_wanted: false,
        is_growth_in_vain: false,
        has_thread: false,
        checkpoint_notes: None,
        is_saving: false,
        is_closed: false,
    }
}

/// Segments of a new store; its first checkpoint needs no more.
const NEW_SEGMENTS: u32 = 5;

/// Makes a new store: zeros, then a checkpoint of nothing.
fn create(file: Arc<dyn DeviceFile>, options: Options, media: MakeMedia) -> Result<Arc<Engine>> {
    put_zeros(&*file, options.segment_bytes)?;
    let media = media(&file, options.segment_bytes);
    let engine = empty(Disk { file, media, gate: None }, options);
    engine.checkpoint_core(&mut engine.core.lock())?;
    Ok(engine)
}

/// Makes the first segments of a new store.
pub(crate) fn put_zeros(file: &dyn DeviceFile, segment_bytes: u32) -> Result<()> {
    let zeros = vec![0; segment_bytes as usize];
    for segment in 0..u64::from(NEW_SEGMENTS) {
        file.write_at(segment * u64::from(segment_bytes), &zeros, Purpose::Gc)?;
    }
    // What is not yet a store must be zeros, or it looks like another's file.
    Ok(file.sync(Purpose::Manifest)?)
}

/// A new store before its first checkpoint.
fn empty(disk: Disk, options: Options) -> Arc<Engine> {
    let segment_bytes = options.segment_bytes;
    let block = Superblock {
        store: StoreId(random()),
        epoch: 0,
        number: 1,
        segment_bytes,
        log: [0, 0],
        roots: NodeRef::default(),
        allocation: options.allocation,
        log_unit: 512,
    };
    let versions = Versions::new(0, Arc::new(Root::empty(options.page_size)));
    let mut log = Log::new(&block);
    log.segments.clear();
    let core = core_of(Space::new(segment_bytes, NEW_SEGMENTS), log, 1);
    engine(disk, options, &block, versions, Releases::default(), core)
}

/// Loads a checkpoint and applies the log. Says whether there was anything in it.
fn load(disk: Disk, options: Options, block: &Superblock) -> Result<(Arc<Engine>, bool)> {
    let Disk { file, media, .. } = &disk;
    let segments = file.len()? / u64::from(block.segment_bytes);
    let too_long = || invalid::<u32>("the file is longer than 2 TiB: it cannot be opened");
    let segments = u32::try_from(segments).or_else(|_| too_long())?;
    let mut space = Space::new(block.segment_bytes, segments);
    if block.allocation == Allocation::Segment {
        space.fill_in_order();
    }
    let mut loader = Loader {
        file: &**file,
        media: &**media,
        space,
        nodes: HashMap::new(),
        seen: HashSet::new(),
        releases: Releases::default(),
    };
    if segments > (u32::MAX / (block.segment_bytes / 512)) {
        too_long()?;
    }
    let roots = loader.roots(block)?;
    let mut scan = log::scan(&**file, &**media, block)?;
    if disk.gate.is_some() && planted::is(Bug::LogNotRead) {
        scan.records.clear();
    }
    // The last process that had it open may have tried to begin some.
    let tried = if planted::is(Bug::EpochUsedTwice) { 0 } else { EPOCHS_TRIED_MAX };
    let next_epoch = block.epoch + tried + 1;
    let core = core_of(Space::new(block.segment_bytes, 1), Log::new(block), next_epoch);
    let mut replay = Replay { loader, versions: loaded_versions(&roots), core };
    replay.roots(&roots)?;
    replay.log_segments(&scan)?;
    replay.core.roots_at = block.roots;
    let log_bytes = scan.frames.iter().map(|(_, bytes)| bytes).sum();
    let found = replay.records(scan)?;
    let Replay { loader, versions, mut core } = replay;
    let Loader { space, releases, nodes, .. } = loader;
    core.space = space;
    core.log.bytes = if found { log_bytes } else { 0 };
    core.roots = roots.into_iter().map(|(_, root)| root).collect();
    drop(nodes);
    Ok((engine(disk, options, block, versions, releases, core), found))
}

/// Makes what was found in the log durable. Without room for a checkpoint a sync does it.
fn decide_once(engine: &Engine) -> Result<()> {
    match engine.checkpoint_core(&mut engine.core.lock()) {
        Err(Error::Full { .. }) => engine.file.sync(Purpose::Recovery).map_err(Error::from),
        outcome => outcome,
    }
}

fn loaded_versions(roots: &[(RootRef, Arc<Root>)]) -> Versions {
    match roots.last() {
        Some((newest, root)) => Versions::new(newest.version, Arc::clone(root)),
        None => Versions::new(0, Arc::new(Root::empty(512))),
    }
}

/// Reads the nodes of a checkpoint.
struct Loader<'a> {
    file: &'a dyn DeviceFile,
    media: &'a dyn Media,
    space: Space,
    /// Nodes by place: versions share them.
    nodes: HashMap<Sector, Node>,
    /// Places met in the version that is being read; none is met twice.
    seen: HashSet<Sector>,
    releases: Releases,
}

impl Loader<'_> {
    fn bytes(&mut self, at: NodeRef) -> Result<Vec<u8>> {
        let bad = |what| corrupt(self.file.name(), at.sector.offset(), what);
        let class = node_class(at.bytes as usize);
        let claimed = class.is_some_and(|class| self.space.claim(at.sector, class));
        if !claimed {
            return Err(bad("map node at an unallocated offset"));
        }
        let mut bytes = vec![0; at.bytes as usize];
        self.file.read_at(at.sector.offset(), &mut bytes, Purpose::Recovery)?;
        if crc32c::crc32c(&bytes) != at.crc {
            return Err(bad("a node of the map does not match its checksum"));
        }
        Ok(bytes)
    }

    fn roots(&mut self, block: &Superblock) -> Result<Vec<(RootRef, Arc<Root>)>> {
        let bytes = self.bytes(block.roots)?;
        let offset = block.roots.sector.offset();
        let roots =
            decode_roots(&bytes).map_err(|error| damaged(self.file.name(), offset, &error))?;
        let mut loaded = Vec::with_capacity(roots.len());
        for root in roots {
            self.seen.clear();
            let bad = |what| corrupt(self.file.name(), offset, what);
            if root.page_size > block.segment_bytes {
                return Err(bad("a page is larger than a segment"));
            }
            let top =
                root.top.map(|top| self.node(top, root.height, root.page_size)).transpose()?;
            let map = Map { top, height: root.height };
            let whole = Root { map, page_size: root.page_size, pages: root.pages };
            loaded.push((root, Arc::new(whole)));
        }
        Ok(loaded)
    }

    fn node(&mut self, at: NodeRef, height: u32, page_size: u32) -> Result<Node> {
        let bad = |what| corrupt(self.file.name(), at.sector.offset(), what);
        if !self.seen.insert(at.sector) {
            return Err(bad("a node is in one map twice"));
        }
        if let Some(node) = self.nodes.get(&at.sector) {
            let node = node.clone();
            if node.home().get() != Some(at) || matches!(node, Node::Leaf(_)) != (height == 0) {
                return Err(bad("a node is in two places"));
            }
            return Ok(node);
        }
        let bytes = self.bytes(at)?;
        let wrong = |error| damaged(self.file.name(), at.sector.offset(), &error);
        let node = if height == 0 {
            Node::Leaf(Arc::new(decode_leaf(&bytes, at.count, page_size).map_err(wrong)?))
        } else {
            let mut inner = Inner::default();
            let children = decode_inner(&bytes, at.count).map_err(wrong)?;
            for (to, child) in inner.children.iter_mut().zip(children) {
                *to = child.map(|child| self.node(child, height - 1, page_size)).transpose()?;
            }
            Node::Inner(Arc::new(inner))
        };
        node.home().set(at, &self.releases);
        self.nodes.insert(at.sector, node.clone());
        Ok(node)
    }
}

/// Builds up the state of a store.
struct Replay<'a> {
    loader: Loader<'a>,
    versions: Versions,
    core: Core,
}

impl Replay<'_> {
    fn claim(&mut self, page: u32, slot: Sector, page_size: u32) -> Result<()> {
        let space = &mut self.loader.space;
        let claimed = Class::holding(page_size as usize).is_some_and(|class| {
            if space.is_in_order() {
                space.claim_in_row(slot, class, page)
            } else {
                space.claim(slot, class)
            }
        });
        if claimed {
            return Ok(());
        }
        let what = "page at an unallocated offset, or at the offset of another page";
        Err(corrupt(self.loader.file.name(), slot.offset(), what))
    }

    /// Claims the slots of all versions of the checkpoint, the newest first: of an older one those
    /// that the next one has not.
    fn roots(&mut self, roots: &[(RootRef, Arc<Root>)]) -> Result<()> {
        let mut newer: Option<&Arc<Root>> = None;
        for (at, root) in roots.iter().rev() {
            let none = Map::default();
            let same_size = newer.filter(|newer| newer.page_size == root.page_size);
            let next = same_size.map_or(&none, |newer| &newer.map);
            let mut lost = Replaced::new();
            root.map.for_each_lost(next, &mut |page, slot| {
                if page >= root.pages {
                    let what = "a page is outside its database";
                    return Err(corrupt(self.loader.file.name(), slot.offset(), what));
                }
                lost.insert(page, slot);
                self.claim(page, slot, root.page_size)
            })?;
            if let Some(newer) = newer {
                let mut gained = |page, _| -> std::result::Result<(), Infallible> {
                    lost.entry(page).or_insert(Sector::NONE);
                    Ok(())
                };
                match newer.map.for_each_lost(&root.map, &mut gained) {
                    Ok(()) => self.versions.prepend(at.version, Arc::clone(root), lost),
                }
            } else {
                self.core.live_slots = lost.len() as i64;
            }
            for name in &at.names {
                self.versions.pin_at(at.version);
                self.core.named.insert(Arc::clone(name), at.version);
            }
            newer = Some(root);
        }
        self.core.delta_bytes = delta_bytes(self.versions.newest().1);
        Ok(())
    }

    fn log_segments(&mut self, scan: &Scan) -> Result<()> {
        // The last one may not be there: the file had grown and lost its new length in a crash.
        for segment in &scan.segments {
            self.loader.space.claim_log(*segment);
        }
        self.core.log.segments.clone_from(&scan.segments);
        let space = &mut self.loader.space;
        let Some(unit) = Class::holding(self.core.log.unit as usize) else { return Ok(()) };
        if !space.is_in_order() {
            return Ok(());
        }
        for (offset, bytes) in &scan.frames {
            if !space.claim_record(*offset, *bytes, unit) {
                let what = "a commit record is where something else is";
                return Err(corrupt(self.loader.file.name(), *offset, what));
            }
        }
        Ok(())
    }

    /// Applies records up to the first whose pages are missing. Returns whether there was any.
    fn records(&mut self, scan: Scan) -> Result<bool> {
        let mut found = false;
        for (number, record) in scan.records {
            let is_sure = number <= scan.durable;
            let is_checked = !is_sure && !planted::is(Bug::PagesNotVerified);
            if is_checked && !self.has_pages(&record)? {
                break;
            }
            self.record(record)?;
            self.core.log.number = number + 1;
            found = true;
        }
        self.core.durable = scan.durable;
        Ok(found)
    }

    /// Whether the pages of a record match their checksums.
    fn has_pages(&self, record: &Record) -> Result<bool> {
        let (Record::Commit(changes) | Record::Prepare(_, changes)) = record else {
            return Ok(true);
        };
        if changes.are_pages_durable {
            return Ok(true);
        }
        let len = self.loader.file.len()?;
        let mut page = vec![0; changes.page_size as usize];
        for entry in changes.slots() {
            if entry.slot.offset() + u64::from(changes.page_size) > len {
                return Ok(false);
            }
            self.loader.media.read(entry.slot.offset(), &mut page, Purpose::Recovery)?;
            if crc32c::crc32c(&page) != entry.crc {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn record(&mut self, record: Record) -> Result<()> {
        let name = self.loader.file.name();
        let bad = |what| Err(corrupt(name, 0, what));
        match (record, self.core.prepared.take()) {
            (Record::Commit(changes), None) => {
                self.changes(&changes)?;
                self.publish(&changes);
            }
            (Record::Prepare(name, changes), None) => {
                self.changes(&changes)?;
                self.core.prepared = Some(Prepared { name, changes });
            }
            (Record::Decide(true), Some(prepared)) => self.publish(&prepared.changes),
            (Record::Decide(false), Some(prepared)) => {
                self.core.dead.extend(prepared.changes.slots().map(|entry| entry.slot));
            }
            (Record::Pin(version, name), prepared) => {
                self.core.prepared = prepared;
                if self.versions.newest().0 != version || self.core.named.contains_key(&name) {
                    return bad("a record names a version that is not there");
                }
                self.versions.pin_at(version);
                self.core.named.insert(name, version);
            }
            (Record::Unpin(name), prepared) => {
                self.core.prepared = prepared;
                match self.core.named.remove(&name) {
                    Some(version) => self.versions.unpin(version),
                    None => return bad("a record releases a name that is not there"),
                }
            }
            _ => return bad("a record does not follow from those before it"),
        }
        Ok(())
    }

    /// Checks changes and claims their slots.
    fn changes(&mut self, changes: &Changes) -> Result<()> {
        let (newest, root) = self.versions.newest();
        let same_size = changes.page_size == root.page_size || changes.is_new_map;
        let fits = u64::from(changes.page_size) <= self.loader.space.segment_bytes();
        if changes.version != newest + 1 || !same_size || !fits {
            let what = "a commit does not follow from the one before it";
            return Err(corrupt(self.loader.file.name(), 0, what));
        }
        for (page, entry) in changes.places() {
            self.claim(page, entry.slot, changes.page_size)?;
        }
        Ok(())
    }

    fn publish(&mut self, changes: &Changes) {
        let applied = changes.apply(self.versions.newest().1);
        self.core.delta_bytes += applied.delta_bytes;
        self.core.live_slots += applied.slots;
        self.versions.publish(changes.version, Arc::new(applied.root), applied.replaced);
    }
}

fn delta_bytes(root: &Root) -> i64 {
    let mut total = 0;
    let mut visit = |_, mapping: &Mapping| -> std::result::Result<(), Infallible> {
        total += mapping.delta.as_ref().map_or(0, |delta| delta.len() as i64);
        Ok(())
    };
    match root.map.for_each(&mut visit) {
        Ok(()) => total,
    }
}

#[cfg(test)]
mod tests;
