//! Creating a tree, and recovering it from what is on the chip.
//!
//! A recovery reads the first page of every block, all checkpoint and log pages, and the inner
//! nodes of the tree. It ends with a new checkpoint in a new block: no block that was open at a
//! power cut is programmed again. A cut in a recovery leaves the same state to the next.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use crate::buffer::{Buffer, Fragment, FragmentPage, Prefix, SubtreeId};
use crate::chip::{BlockNo, Chip, PageNo, Read};
use crate::error::{Error, Result};
use crate::flash::Flash;
use crate::options::{Options, Plan};
use crate::page::{self, Decoded, Header, Kind};
use crate::planted::{self, Bug};
use crate::space::State;
use crate::stats::Stats;
use crate::table::Table;
use crate::tree::{LaTree, Log, has_subtrees};

/// More levels than a tree on a chip has: one that is split has two nodes.
const LEVELS_MAX: u8 = 32;

impl<C: Chip> LaTree<C> {
    fn new(chip: C, options: Options) -> Result<Self> {
        let plan = Plan::new(&chip, &options)?;
        let mut tree = Self {
            flash: Flash::new(chip),
            table: Table::default(),
            root: SubtreeId(0),
            last_root: SubtreeId(0),
            options,
            plan,
            log: Log::default(),
            due: VecDeque::new(),
            pool_max: 0,
            pool_parts: 2,
            has_filters: false,
            is_collecting: false,
            is_emptying: false,
            is_poisoned: false,
            vanished: Vec::new(),
            stats: Stats::default(),
            mix: (0, 0),
        };
        tree.divide_memory();
        Ok(tree)
    }

    /// Creates an empty tree on a chip, whatever it holds. Erase counts of earlier trees are kept.
    ///
    /// # Errors
    /// [`Error::Options`] and [`Error::Memory`] for what does not fit the chip, errors of the chip.
    pub fn create(chip: C, options: Options) -> Result<Self> {
        let mut tree = Self::new(chip, options)?;
        let survey = tree.survey()?;
        tree.log.number = survey.greatest;
        let mut blocks: Vec<_> = tree.flash.space.numbered().map(|(at, _)| at).collect();
        blocks.retain(|at| {
            tree.flash.space.block(*at).is_some_and(|block| block.state != State::Retired)
        });
        for block in blocks {
            tree.flash.space.set_state(block, State::Free);
        }
        let at = tree.flash.write(Kind::Node, 1, 0, &[0, 0, 0xFF, 0xFF])?;
        tree.root = tree.table.add(at, 1);
        tree.stats.leaves = 1;
        tree.checkpoint()?;
        Ok(tree)
    }

    /// Opens the tree of a chip, as of the last [`LaTree::sync`] or later. Options other than
    /// `subtree_levels` may differ from those before.
    ///
    /// # Errors
    /// [`Error::Blank`], [`Error::Foreign`], [`Error::Newer`], [`Error::Unfinished`],
    /// [`Error::Geometry`]; [`Error::Damaged`]; [`Error::Memory`]; errors of the chip.
    pub fn open(chip: C, options: Options) -> Result<Self> {
        let mut tree = Self::new(chip, options)?;
        let survey = tree.survey()?;
        tree.log.number = survey.greatest;
        let (number, last) = survey.newest()?;
        let (pages, mut log) = tree.find(&survey.meta, number, last)?;
        drop(survey);
        if planted::is(Bug::LogIgnored) {
            log.clear();
        }
        // The cache has room when it is known what the table takes.
        tree.flash.set_cache(0);
        tree.restore(&pages)?;
        if tree.table.bytes() > tree.plan.shared {
            return Err(tree.too_many_subtrees());
        }
        tree.divide_memory();
        tree.count_live()?;
        tree.flash.space.forget_held();
        // What the checkpoint and its log need is not free before the next checkpoint.
        for page in pages.iter().chain(&log) {
            let block = tree.flash.space.block_of(*page);
            tree.flash.space.add_live(*page);
            tree.flash.space.set_state(block, State::ClosedMeta);
            tree.log.pages.push(*page);
        }
        tree.is_collecting = true;
        for page in log {
            tree.replay(page)?;
        }
        tree.checkpoint()?;
        tree.is_collecting = false;
        Ok(tree)
    }

    fn replay(&mut self, at: PageNo) -> Result<()> {
        let (_, bytes) = self.flash.read_raw(at)?;
        page::require(&bytes, at, Kind::Log)?;
        for entry in page::entries(page::payload(&bytes).get(4..).unwrap_or(&[])) {
            self.insert_at_top(entry)?;
        }
        self.flush_excess()
    }

    /// Reads the first page of every block, or two, and all pages of checkpoints and logs.
    fn survey(&mut self) -> Result<Survey> {
        let mut survey = Survey::default();
        for block in (0..self.flash.chip.blocks()).map(BlockNo) {
            let first = self.flash.space.first_page(block);
            self.flash.space.set_state(block, State::Closed);
            let Some(header) = self.header_of(first, &mut survey)? else { continue };
            self.flash.space.set_erases(block, header.erases);
            if matches!(header.kind, Kind::Checkpoint | Kind::Log) {
                survey.meta.push(block);
                for index in 1..self.flash.space.pages_per_block() {
                    let at = PageNo(first.0 + index);
                    let (read, bytes) = self.flash.read_raw(at)?;
                    survey.note(at, read, &bytes);
                }
            } else {
                self.last_seq(block, &mut survey)?;
            }
        }
        self.flash.next_seq = survey.seq.saturating_add(1);
        Ok(survey)
    }

    /// The header of the first page of a block; where that is damaged, of the second, so that it
    /// does not hide the others.
    fn header_of(&mut self, first: PageNo, survey: &mut Survey) -> Result<Option<Header>> {
        for at in [first, PageNo(first.0 + 1)] {
            let (read, bytes) = self.flash.read_raw(at)?;
            survey.note(at, read, &bytes);
            match page::decode(&bytes) {
                Decoded::Ours(header) => return Ok(Some(header)),
                _ if read == Read::Erased => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The pages of a checkpoint up to its last, and of its log as far as it is complete, in these
    /// blocks. One that was programmed again, because its block failed, may be there twice.
    fn find(
        &mut self,
        blocks: &[BlockNo],
        number: u32,
        last: u32,
    ) -> Result<(Vec<PageNo>, Vec<PageNo>)> {
        let (mut pages, mut log) = (BTreeMap::new(), BTreeMap::new());
        let mut durable = 0;
        for block in blocks {
            let first = self.flash.space.first_page(*block);
            for at in (0..self.flash.space.pages_per_block()).map(|index| PageNo(first.0 + index)) {
                let (read, bytes) = self.flash.read_raw(at)?;
                let (Read::Data, Decoded::Ours(header)) = (read, page::decode(&bytes)) else {
                    continue;
                };
                let index = page::u32_at(page::payload(&bytes), 0).unwrap_or(u32::MAX);
                match header.kind {
                    Kind::Checkpoint if header.owner == number => drop(pages.insert(index, at)),
                    Kind::Log if header.owner == number => {
                        durable = durable.max(if header.level == 1 { index } else { 0 });
                        log.insert(index, at);
                    }
                    _ => {}
                }
            }
        }
        let in_order = |pages: BTreeMap<u32, PageNo>| -> Vec<PageNo> {
            let successive = (0..).zip(pages).take_while(|(at, (index, _))| at == index);
            successive.map(|(_, (_, page))| page).collect()
        };
        let (pages, log) = (in_order(pages), in_order(log));
        if pages.len() as u64 != u64::from(last) + 1 {
            return Err(Error::Damaged {
                page: pages.last().copied().unwrap_or(PageNo(0)),
                what: "the page of its checkpoint after it is not there",
            });
        }
        if (log.len() as u64) < u64::from(durable) {
            return Err(Error::Damaged {
                page: log.last().or(pages.last()).copied().unwrap_or(PageNo(0)),
                what: "the page of its log after it is not there",
            });
        }
        Ok((pages, log))
    }

    /// Finds the last page of a block that was programmed, by bisection: pages are programmed in
    /// order. One that is torn may hide those after it, whose numbers matter to nobody then.
    fn last_seq(&mut self, block: BlockNo, survey: &mut Survey) -> Result<()> {
        let first = self.flash.space.first_page(block);
        let (mut low, mut high) = (0, self.flash.space.pages_per_block());
        while high - low > 1 {
            let middle = u32::midpoint(low, high);
            let (read, bytes) = self.flash.read_raw(PageNo(first.0 + middle))?;
            match (read, page::decode(&bytes)) {
                (Read::Data, Decoded::Ours(header)) => {
                    survey.seq = survey.seq.max(header.seq);
                    low = middle;
                }
                _ => high = middle,
            }
        }
        Ok(())
    }

    /// Reads a checkpoint.
    fn restore(&mut self, pages: &[PageNo]) -> Result<()> {
        let mut reader = Reader { flash: &mut self.flash, pages, at: 0, piece: Vec::new() };
        let found = [reader.number()?, reader.number()?, reader.number()?];
        let levels = reader.byte()?;
        let chip = [
            reader.flash.page_bytes as u32,
            reader.flash.space.pages_per_block(),
            reader.flash.chip.blocks(),
        ];
        if found != chip || levels != self.options.subtree_levels {
            return Err(Error::Geometry(format!(
                "the tree was created for pages of {} bytes, {} in a block, {} blocks, {levels} \
                 levels in a subtree; the chip and the options have {}, {}, {} and {}: use those",
                found[0],
                found[1],
                found[2],
                chip[0],
                chip[1],
                chip[2],
                self.options.subtree_levels
            )));
        }
        self.root = SubtreeId(reader.number()?);
        self.last_root = self.root;
        for _ in 0..reader.number()? {
            let block = BlockNo(reader.number()?);
            reader.flash.space.set_state(block, State::Retired);
        }
        for id in 0..reader.number()? {
            let level = reader.byte()?;
            if level == 0 {
                self.table.restore(None);
                continue;
            }
            let root = PageNo(reader.number()?);
            if level > LEVELS_MAX {
                return Err(Error::Damaged {
                    page: root,
                    what: "its level is too high for a tree",
                });
            }
            self.table.restore(Some((root, level)));
            let buffer = reader.buffer()?;
            self.table.put_back(SubtreeId(id), buffer.into())?;
        }
        self.table.get(self.root).map(drop)
    }

    /// Counts the pages of the tree, from its inner nodes and its buffers.
    fn count_live(&mut self) -> Result<()> {
        let slots = self.table.slots().len() as u32;
        for id in (0..slots).map(SubtreeId) {
            if self.table.has(id) {
                self.count_subtree(id)?;
            }
        }
        Ok(())
    }

    fn count_subtree(&mut self, id: SubtreeId) -> Result<()> {
        let subtree = self.table.get(id)?;
        let mut stack = Vec::from([(subtree.root, subtree.level)]);
        for page in subtree.buffer.iter().flat_map(|buffer| buffer.all_pages()) {
            self.flash.space.add_live(page.at);
        }
        while let Some((at, level)) = stack.pop() {
            self.flash.space.add_live(at);
            if level == 1 {
                self.stats.leaves += 1;
                continue;
            }
            let node = self.flash.read(at, Kind::Node)?;
            if page::require(&node, at, Kind::Node)?.level != level {
                return Err(Error::Damaged { page: at, what: "it is a node of another level" });
            }
            let are_subtrees = has_subtrees(level, self.k());
            for (_, value) in page::entries(page::payload(&node)) {
                let child = page::child(value);
                if !are_subtrees {
                    stack.push((PageNo(child), level - 1));
                } else if self.table.get(SubtreeId(child)).ok().map(|below| below.level)
                    != Some(level - 1)
                {
                    // Otherwise a way down might have no end.
                    let what = "its child is a subtree of another level";
                    return Err(Error::Damaged { page: at, what });
                }
            }
        }
        Ok(())
    }
}

/// What the pages of a chip say.
#[derive(Default)]
struct Survey {
    /// Blocks of checkpoints and logs.
    meta: Vec<BlockNo>,
    /// The newest checkpoint of which there is the last page, and that page's index. It is
    /// programmed after all others, so these must be there.
    newest: Option<(u32, u32)>,
    /// The greatest number of a log, and a page of that.
    logged: Option<(u32, PageNo)>,
    greatest: u32,
    seq: u64,
    newer: Option<u8>,
    is_ours: bool,
    is_foreign: bool,
}

impl Survey {
    fn note(&mut self, at: PageNo, read: Read, bytes: &[u8]) {
        if read == Read::Erased {
            return;
        }
        match (read, page::decode(bytes)) {
            (Read::Data, Decoded::Ours(header)) => self.note_ours(at, &header, bytes),
            (Read::Data, Decoded::Newer(version)) => self.newer = Some(version),
            _ => self.is_foreign = true,
        }
    }

    fn note_ours(&mut self, at: PageNo, header: &Header, bytes: &[u8]) {
        self.is_ours = true;
        self.seq = self.seq.max(header.seq);
        if matches!(header.kind, Kind::Checkpoint | Kind::Log) {
            self.greatest = self.greatest.max(header.owner);
        }
        let payload = page::payload(bytes);
        match header.kind {
            Kind::Log => self.logged = self.logged.max(Some((header.owner, at))),
            Kind::Checkpoint if payload.get(4) == Some(&1) => {
                let last = page::u32_at(payload, 0).map(|index| (header.owner, index));
                self.newest = self.newest.max(last);
            }
            _ => {}
        }
    }

    /// The number of the newest complete checkpoint, and the index of its last page.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a log without its checkpoint, which was complete before it.
    fn newest(&self) -> Result<(u32, u32)> {
        match (self.newest, self.logged) {
            (newest, Some((log, page))) if newest.is_none_or(|(number, _)| number < log) => {
                Err(Error::Damaged { page, what: "the checkpoint before this log is not there" })
            }
            (newest, _) => newest.ok_or_else(|| self.refusal()),
        }
    }

    /// Why there is no checkpoint.
    fn refusal(&self) -> Error {
        match self.newer {
            Some(version) => Error::Newer { version },
            None if self.is_ours => Error::Unfinished,
            None if self.is_foreign => Error::Foreign,
            None => Error::Blank,
        }
    }
}

/// The stream of a checkpoint.
struct Reader<'a, C> {
    flash: &'a mut Flash<C>,
    pages: &'a [PageNo],
    at: usize,
    piece: Vec<u8>,
}

impl<C: Chip> Reader<'_, C> {
    fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        while self.piece.len() < count {
            let at = self.pages.get(self.at).copied();
            let page = at.ok_or(Error::Damaged {
                page: self.pages.last().copied().unwrap_or(PageNo(0)),
                what: "its checkpoint ends early",
            })?;
            self.at += 1;
            let (_, bytes) = self.flash.read_raw(page)?;
            page::require(&bytes, page, Kind::Checkpoint)?;
            self.piece.extend_from_slice(page::payload(&bytes).get(5..).unwrap_or(&[]));
        }
        Ok(self.piece.drain(..count).collect())
    }

    fn number(&mut self) -> Result<u32> {
        Ok(page::u32_at(&self.bytes(4)?, 0).unwrap_or(0))
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?.first().copied().unwrap_or(0))
    }

    fn buffer(&mut self) -> Result<Buffer> {
        let mut buffer = Buffer::default();
        let fragments = page::u16_at(&self.bytes(2)?, 0).unwrap_or(0);
        for _ in 0..fragments {
            let mut pages = Vec::new();
            for _ in 0..self.number()? {
                let at = PageNo(self.number()?);
                let prefix = self.bytes(8)?.try_into().unwrap_or([0; 8]);
                pages.push(FragmentPage { at, prefix: Prefix(prefix) });
            }
            buffer.fragments.push(Fragment { pages: pages.into(), filter: None });
        }
        for _ in 0..self.number()? {
            let head = self.bytes(page::ENTRY_BYTES)?;
            let size = page::body_bytes(&head);
            let mut bytes = head;
            bytes.extend(self.bytes(size)?);
            if let Some((entry, _)) = page::first(&bytes) {
                buffer.part.insert(entry);
            }
        }
        Ok(buffer)
    }
}
