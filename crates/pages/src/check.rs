//! A check that reads everything in a store and compares it with its checksums and with the maps.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use esker_device::Purpose;

use crate::counters::named;
use crate::engine::Engine;
use crate::error::{Result, corrupt};
use crate::place::Sector;
use crate::snapshot::Snapshot;
use crate::stats::Version;
use crate::store::PageStore;
use crate::version::map::Root;
use crate::version::mapping::Mapping;
use crate::version::tree::Node;

/// The counts of what a check has read. No damage was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Versions that were read whole.
    pub versions: u64,
    /// Pages that were read, those shared by versions once.
    pub pages: u64,
    /// Nodes of the map on the device that were read.
    pub nodes: u64,
    /// Whether it was also proved that every slot in use is needed, which takes a moment without
    /// a writer and without a checkpoint.
    pub accounted: bool,
}

impl Report {
    /// Each by name, but [`Report::accounted`].
    #[must_use]
    pub fn fields(&self) -> [(&'static str, u64); 3] {
        named!(self, Report { versions, pages, nodes } without accounted)
    }
}

impl PageStore {
    /// Reads every page of every kept version and every node of the map on the device, and proves
    /// that the space in use is what they need. Commits continue meanwhile.
    ///
    /// # Errors
    /// The first damage that is met.
    pub fn check(&self) -> Result<Report> {
        let engine = self.engine();
        let held: Vec<_> = self.versions().iter().filter_map(|at| self.hold(at)).collect();
        let mut report = Report { accounted: engine.account()?, ..Report::default() };
        let mut seen = BTreeSet::new();
        for snapshot in &held {
            report.versions += 1;
            let root = snapshot.root();
            engine.check_pages(&root, &mut seen, &mut report)?;
            if let Some(top) = root.map.top.as_ref().filter(|_| engine.knows_nodes()) {
                engine.check_nodes(top, &mut seen, &mut report)?;
            }
        }
        Ok(report)
    }
}

impl PageStore {
    /// Holds a version that was there, if it still is.
    fn hold(&self, at: &Version) -> Option<Snapshot> {
        let by_name = || at.names.iter().find_map(|name| self.at_named(name).ok());
        Snapshot::of(self.engine(), at.version).or_else(by_name)
    }
}

impl Engine {
    /// Whether every place that a node remembers is its own: not where several processes have the
    /// store open ([`crate::log::shared`]).
    fn knows_nodes(&self) -> bool {
        self.core.lock().shared.is_none()
    }

    fn check_pages(
        &self,
        root: &Root,
        seen: &mut BTreeSet<Sector>,
        report: &mut Report,
    ) -> Result<()> {
        let mut page = vec![0; root.page_size as usize];
        root.map.for_each(&mut |_, mapping: &Mapping| {
            let is_new = mapping.entry.slot != Sector::NONE && seen.insert(mapping.entry.slot);
            if !is_new {
                return Ok(());
            }
            report.pages += 1;
            self.read_mapping(mapping, &mut page, Purpose::Check)
        })
    }

    fn check_nodes(
        &self,
        node: &Node,
        seen: &mut BTreeSet<Sector>,
        report: &mut Report,
    ) -> Result<()> {
        if let Some(at) = node.home().get()
            && seen.insert(at.sector)
        {
            let mut bytes = vec![0; at.bytes as usize];
            self.media.read(at.sector.offset(), &mut bytes, Purpose::Check)?;
            if crc32c::crc32c(&bytes) != at.crc {
                let what = "a node of the map does not match its checksum";
                return Err(corrupt(self.media.name(), at.sector.offset(), what));
            }
            report.nodes += 1;
        }
        let Node::Inner(inner) = node else { return Ok(()) };
        inner.children.iter().flatten().try_for_each(|child| self.check_nodes(child, seen, report))
    }

    /// Proves that all space in use is needed and that all space needed is in use. Returns `false`
    /// when a writer exists, because its pages are in no map yet, or while a checkpoint is being
    /// taken.
    fn account(&self) -> Result<bool> {
        let core = self.core.lock();
        if self.has_writer.load(Ordering::Acquire) || core.is_saving || core.mover.is_any() {
            return Ok(false);
        }
        let versions = self.versions.lock();
        let mut needed = BTreeSet::new();
        for kept in versions.kept() {
            if let Some(root) = versions.root(kept.version) {
                slots_of(root, &mut needed);
                let nodes = root.map.top.iter().filter(|_| core.shared.is_none());
                nodes.for_each(|top| nodes_of(top, &mut needed));
            }
        }
        if core.shared.is_some() {
            // Those of versions that are read elsewhere.
            needed.extend(versions.replaced_slots());
        }
        // Readers may hold roots that are older than a move of pages.
        let held = core.retired.iter().flat_map(|retired| &retired.roots);
        let held: Vec<Arc<Root>> = held.filter_map(Weak::upgrade).collect();
        for top in core.roots.iter().chain(&held).filter_map(|root| root.map.top.as_ref()) {
            nodes_of(top, &mut needed);
        }
        let prepared = core.prepared.iter().flat_map(|held| held.changes.slots());
        let retired = core.retired.iter().flat_map(|retired| &retired.places);
        let apart = core.dead.iter().chain(versions.dead()).chain(retired).copied();
        let apart = apart.chain(prepared.map(|entry| entry.slot)).chain([core.roots_at.sector]);
        let released = self.releases.lock().clone();
        let mut is_once = true;
        let released = released.into_iter().filter(|_| core.shared.is_none());
        for sector in apart.chain(released) {
            is_once &= needed.insert(sector);
        }
        let bytes: u64 = needed.iter().map(|sector| core.space.slot_bytes(*sector)).sum();
        let what = match bytes.cmp(&core.space.used_bytes()) {
            std::cmp::Ordering::Less => "slots are marked in use and nothing refers to them",
            std::cmp::Ordering::Greater => "slots that are needed are free",
            std::cmp::Ordering::Equal if !is_once => "slots are both needed and released",
            std::cmp::Ordering::Equal => return Ok(true),
        };
        Err(corrupt(self.media.name(), 0, what))
    }
}

fn slots_of(root: &Root, needed: &mut BTreeSet<Sector>) {
    let mut visit = |_, mapping: &Mapping| -> std::result::Result<(), Infallible> {
        if mapping.entry.slot != Sector::NONE {
            needed.insert(mapping.entry.slot);
        }
        Ok(())
    };
    match root.map.for_each(&mut visit) {
        Ok(()) => {}
    }
}

fn nodes_of(node: &Node, needed: &mut BTreeSet<Sector>) {
    needed.extend(node.home().get().map(|at| at.sector));
    if let Node::Inner(inner) = node {
        inner.children.iter().flatten().for_each(|child| nodes_of(child, needed));
    }
}
