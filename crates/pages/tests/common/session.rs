//! A store and its model side by side.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use super::common::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use esker_device::sim::SimDevice;
use esker_pages::{
    Allocation, Durability, Error, Options, PageStore, Result, Snapshot, Squeeze, Unfinished,
    Writer,
};

/// What is known of a store from outside.
#[derive(Clone, Debug)]
pub struct Point {
    pub durable: u64,
    pub visible: u64,
    pub names: Names,
}

impl Point {
    /// Whether more is promised here than at `other`.
    pub fn differs(&self, other: &Self) -> bool {
        let names = |point: &Self| point.names.keys().copied().collect::<Vec<_>>();
        (self.durable, self.visible) != (other.durable, other.visible)
            || names(self) != names(other)
    }
}

/// A run of a store and of its model.
pub struct Session {
    pub device: SimDevice,
    pub options: Options,
    pub store: Option<PageStore>,
    pub writer: Option<Writer>,
    pub unfinished: Option<Unfinished>,
    pub squeeze: Option<Squeeze>,
    pub working: Contents,
    /// What each version holds.
    pub versions: BTreeMap<u64, Contents>,
    pub pins: Vec<(Snapshot, Contents)>,
    pub names: Names,
    pub durable: u64,
    /// What transactions would have made of which version that were prepared, or whose commit
    /// failed when the contents of the device are unknown.
    pub prepared: Vec<(u64, Contents)>,
    /// Names that were being given or taken when something failed.
    pub doubtful_names: Vec<u8>,
}

impl Session {
    pub fn start(device: SimDevice, options: Options) -> Result<Self> {
        let store = open(&device, &options)?;
        Self::over(store, device, options)
    }

    /// Goes on with a store that is open.
    pub fn over(store: PageStore, device: SimDevice, options: Options) -> Result<Self> {
        let snapshot = store.pin();
        let contents = read_all(&snapshot)?;
        let versions = BTreeMap::from([(snapshot.version(), contents.clone())]);
        let durable = snapshot.version();
        drop(snapshot);
        Ok(Self {
            device,
            options,
            store: Some(store),
            writer: None,
            unfinished: None,
            squeeze: None,
            working: contents,
            versions,
            pins: Vec::new(),
            names: Names::new(),
            durable,
            prepared: Vec::new(),
            doubtful_names: Vec::new(),
        })
    }

    pub fn store(&self) -> &PageStore {
        self.store.as_ref().unwrap()
    }

    pub fn newest(&self) -> u64 {
        *self.versions.keys().next_back().unwrap()
    }

    pub fn contents(&self) -> &Contents {
        &self.versions[&self.newest()]
    }

    pub fn point(&self) -> Point {
        Point { durable: self.durable, visible: self.newest(), names: self.names.clone() }
    }

    fn writer(&mut self) -> Result<&mut Writer> {
        if self.writer.is_none() {
            self.working = self.contents().clone();
            let snapshot = self.store().pin();
            self.writer = Some(self.store().begin(&snapshot)?);
        }
        Ok(self.writer.as_mut().unwrap())
    }

    fn committed(&mut self, snapshot: &Snapshot, durability: Durability) {
        let changed = self.working != *self.contents();
        let expected = self.newest() + u64::from(changed);
        // Pages of zeros that came and went again may be a version of their own.
        assert!(snapshot.version() == expected || snapshot.version() == self.newest() + 1);
        self.versions.insert(snapshot.version(), self.working.clone());
        // One that was prepared is visible even where its decision could not be written.
        let is_sound = self.store().poisoned().is_none();
        if durability == Durability::Full && changed && is_sound {
            self.durable = snapshot.version();
        }
    }

    /// Does one thing. Errors are those of the store; a wrong answer panics.
    pub fn apply(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Write(page, offset, bytes) => {
                let size = self.writer()?.page_size();
                let bytes = &bytes[..bytes.len().min((size - offset) as usize)];
                self.writer()?.write(*page, *offset, bytes)?;
                self.working.write(*page, *offset, bytes);
            }
            Op::Truncate(pages) => {
                self.writer()?.truncate(*pages)?;
                self.working.truncate(*pages);
            }
            Op::PageSize(bytes) => {
                let writer = self.writer()?;
                let is_new = *bytes != writer.page_size();
                writer.set_page_size(*bytes)?;
                if is_new {
                    self.working = Contents::empty(*bytes);
                }
            }
            Op::Commit(durability) => self.commit(*durability, false)?,
            Op::Prepare => self.commit(Durability::Full, true)?,
            Op::Abort => drop(self.writer.take()),
            Op::Pin => {
                let snapshot = self.store().pin();
                assert_eq!(snapshot.version(), self.newest());
                let contents = self.contents().clone();
                self.pins.push((snapshot, contents));
            }
            Op::Unpin(pick) if !self.pins.is_empty() => {
                let (snapshot, contents) = self.pins.swap_remove(pick % self.pins.len());
                assert_eq!(read_all(&snapshot)?, contents);
            }
            Op::Unpin(_) => {}
            Op::PinNamed(n) => self.pin_named(*n)?,
            Op::UnpinNamed(n) => self.unpin_named(*n)?,
            Op::Reopen => self.reopen()?,
            upkeep => self.keep_up(upkeep)?,
        }
        Ok(())
    }

    /// What makes the store durable, or its file shorter, and changes no contents.
    fn keep_up(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Sync => {
                self.store().sync()?;
                self.durable = self.newest();
            }
            Op::Checkpoint => {
                self.store().checkpoint()?;
                self.durable = self.newest();
            }
            Op::BeginCheckpoint if self.unfinished.is_none() => {
                let mut unfinished = self.store().begin_checkpoint()?;
                unfinished.save()?;
                self.unfinished = Some(unfinished);
            }
            Op::BeginCheckpoint => {}
            Op::FinishCheckpoint => {
                let unfinished = self.unfinished.take();
                if unfinished.map_or(Ok(false), Unfinished::finish)? {
                    self.durable = self.newest();
                }
            }
            Op::Collect => {
                self.store().collect()?;
                if self.options.allocation == Allocation::Segment {
                    self.durable = self.newest();
                }
            }
            Op::Compact => {
                (self.unfinished, self.squeeze) = (None, None);
                let done = self.store().compact(&mut |_, _| ControlFlow::Continue(()))?;
                // What is short already may need a segment more for the log.
                let few = 2 * 16 * 1024;
                assert!(done.after_bytes <= done.before_bytes + few, "{done:?}");
                assert_eq!(self.store().stats().file_bytes, done.after_bytes);
                self.durable = self.newest();
            }
            Op::BeginSqueeze if self.squeeze.is_none() => {
                self.unfinished = None;
                self.squeeze = Some(self.store().begin_squeeze()?);
                self.durable = self.newest();
            }
            Op::BeginSqueeze => {}
            Op::StepSqueeze => {
                self.squeeze.as_mut().map_or(Ok(false), Squeeze::step)?;
            }
            Op::FinishSqueeze => {
                if let Some(squeeze) = self.squeeze.take() {
                    squeeze.finish()?;
                    self.durable = self.newest();
                }
            }
            _ => unreachable!("{op:?} changes the contents"),
        }
        Ok(())
    }

    fn commit(&mut self, durability: Durability, prepare: bool) -> Result<()> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        if prepare {
            self.prepared.push((self.newest() + 1, self.working.clone()));
            writer.prepare(b"super-journal")?;
            if self.newest().is_multiple_of(3)
                && let Err(error) = self.store().checkpoint()
            {
                writer.abort();
                return Err(error);
            }
            if self.newest().is_multiple_of(2) {
                writer.abort();
                return Ok(());
            }
            if self.newest() % 4 == 1 && writer.is_prepared() {
                return self.cut(writer, durability);
            }
        }
        match writer.commit(durability) {
            Ok(snapshot) => self.committed(&snapshot, durability),
            Err(error) => {
                if self.store().poisoned().is_some() {
                    self.prepared.push((self.newest() + 1, self.working.clone()));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Commits what is prepared, and what cuts it then: that is a version of its own, where there
    /// is room for its record.
    fn cut(&mut self, mut writer: Writer, durability: Durability) -> Result<()> {
        let (newest, whole) = (self.newest(), self.working.clone());
        let pages = writer.pages() - writer.pages().div_ceil(3);
        writer.truncate(pages)?;
        let snapshot = writer.commit(durability)?;
        let is_cut = snapshot.version() == newest + 2;
        assert!(is_cut || snapshot.version() == newest + 1);
        if is_cut {
            self.versions.insert(newest + 1, whole);
            self.working.truncate(pages);
        }
        self.committed(&snapshot, durability);
        Ok(())
    }

    fn pin_named(&mut self, n: u8) -> Result<()> {
        match self.store().pin_named(&name(n)) {
            Err(Error::InvalidArgument(_)) if self.names.contains_key(&n) => return Ok(()),
            Err(error) => return Err(error),
            Ok(version) => assert_eq!(version, self.newest()),
        }
        self.names.insert(n, (self.newest(), self.contents().clone()));
        self.durable = self.newest();
        Ok(())
    }

    fn unpin_named(&mut self, n: u8) -> Result<()> {
        match self.store().unpin_named(&name(n)) {
            Err(Error::InvalidArgument(_)) if !self.names.contains_key(&n) => return Ok(()),
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        self.names.remove(&n);
        self.durable = self.newest();
        Ok(())
    }

    pub fn reopen(&mut self) -> Result<()> {
        self.writer = None;
        self.pins.clear();
        (self.unfinished, self.squeeze) = (None, None);
        self.store.take().unwrap().close()?;
        self.durable = self.newest();
        let open = if self.newest().is_multiple_of(2) { open } else { open_late };
        self.store = Some(open(&self.device, &self.options)?);
        self.judge()
    }

    /// Compares everything that can be read with the model.
    pub fn judge(&self) -> Result<()> {
        let snapshot = self.store().pin();
        assert_eq!(snapshot.version(), self.newest());
        assert_eq!(read_all(&snapshot)?, *self.contents());
        for (snapshot, contents) in &self.pins {
            assert_eq!(read_all(snapshot)?, *contents);
        }
        for (n, (version, contents)) in &self.names {
            let snapshot = self.store().at_named(&name(*n))?;
            assert_eq!(snapshot.version(), *version);
            assert_eq!(read_all(&snapshot)?, *contents);
        }
        if let Some(writer) = &self.writer {
            assert_eq!(read_writer(writer)?, self.working);
        }
        let report = self.store().check()?;
        let is_alone = self.unfinished.is_none() && self.squeeze.is_none();
        let is_alone = is_alone && self.writer.is_none();
        assert_eq!(report.accounted, is_alone);
        Ok(())
    }
}
