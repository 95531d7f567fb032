//! A whole store, edited behind its checksums: what a hostile file looks like to the code that
//! trusts them.
//!
//! The input is a list of edits of a small real store. Edits of records, superblocks and blocks
//! make the checksums fit again (a block's also in the manifest, where it is named there), so
//! that what is reached is the code behind them.

use std::sync::{Arc, OnceLock};

use esker::Db;
use esker_format::bytes::Reader;
use esker_format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, Seal};
use esker_format::ids::Epoch;
use esker_format::log_record::{LOG_GRAIN_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use esker_format::manifest_edit::{Edit, MANIFEST_GRAIN_BYTES, RecordBody};
use esker_format::ptr::BlockPtr;
use esker_format::superblock::{COPIES, SLOT_BYTES, Superblock, slot_offset};

use super::{fix_block, fix_checksum, put};
use crate::config::Config;
use crate::flips::stores;
use crate::image::{Image, ImageDevice};

/// No more edits than this are made of one input.
const EDITS_MAX: usize = 8;

/// Edits a store as the input says, opens it, reads everything, checks and changes it. Errors are
/// fine.
pub fn store_image(input: &[u8]) {
    let Some(Ok(db)) = edited_store(input) else { return };
    let _any = db.check();
    for name in db.keyspaces().unwrap_or_default() {
        let Ok(Some(keyspace)) = db.open_keyspace(&name) else { continue };
        let _any = keyspace.iter().map(|range| range.skip_damaged().take(10_000).count());
        let _any = keyspace.iter().map(|range| range.skip_damaged().rev().take(10_000).count());
        let _any = (keyspace.get(b"user000007"), keyspace.insert("key", "value"));
        let _any = keyspace.compact();
    }
}

/// The store that an input makes, opened; none when there is nothing to edit.
pub fn edited_store(input: &[u8]) -> Option<esker::Result<Db>> {
    static BASE: OnceLock<Option<Image>> = OnceLock::new();
    let base = BASE.get_or_init(|| stores::dirty_log().ok().map(|specimen| specimen.image));
    assert!(base.is_some(), "the store to edit cannot be made");
    let mut editor = base.as_ref().and_then(Editor::new)?;
    let mut reader = Reader::new(input);
    for _ in 0..EDITS_MAX {
        if editor.edit(&mut reader).is_none() {
            break;
        }
    }
    Some(Config::default().open(&(Arc::new(ImageDevice::new(&editor.image)) as _)))
}

/// A store's files and what is needed to make its checksums fit.
struct Editor {
    image: Image,
    superblock: Superblock,
    manifest: String,
    segments: Vec<String>,
}

/// A record in a file.
#[derive(Clone, Copy)]
struct Frame {
    offset: usize,
    header: FrameHeader,
}

impl Editor {
    fn new(base: &Image) -> Option<Self> {
        let image = base.clone();
        let bytes = image.bytes("superblock");
        let slots = (0..2).flat_map(|epoch| (0..COPIES).map(move |c| slot_offset(Epoch(epoch), c)));
        let slots = slots.filter_map(|at| bytes.get(at as usize..at as usize + SLOT_BYTES));
        let decoded = slots.filter_map(|slot| Superblock::decode(slot).ok());
        let superblock = decoded.max_by_key(|superblock| superblock.epoch)?;
        let manifest = format!("manifest-{:08x}", superblock.epoch.0);
        let names = image.files().map(|(name, _)| name.to_owned());
        let segments = names.filter(|name| name.starts_with("log-")).collect();
        Some(Self { image, superblock, manifest, segments })
    }

    /// Makes the next edit; none when the input ends.
    fn edit(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let kind = reader.u8().ok()?;
        let (which, offset) = (reader.u8().ok()?, reader.u16().ok()?);
        let len = usize::from(reader.u8().ok()? % 32);
        let bytes = reader.take(len).ok()?;
        let (which, offset) = (usize::from(which), usize::from(offset));
        match kind % 5 {
            0 => self.overwrite(which, offset, bytes),
            1 => self.edit_superblock(which, offset, bytes),
            2 => self.edit_record(which, offset, bytes),
            3 => self.edit_batch(which, offset, bytes),
            _ => self.edit_block(which, offset, bytes),
        }
        Some(())
    }

    fn overwrite(&mut self, which: usize, offset: usize, bytes: &[u8]) {
        let files: Vec<(String, usize)> =
            self.image.files().map(|(name, len)| (name.to_owned(), len)).collect();
        let Some((file, len)) = files.get(which % files.len().max(1)) else { return };
        let offset = offset.wrapping_mul(7) % (*len).max(1);
        let bytes = bytes.get(..bytes.len().min(len - offset)).unwrap_or_default();
        self.image.overwrite(file, offset, bytes);
    }

    fn edit_superblock(&mut self, which: usize, offset: usize, bytes: &[u8]) {
        let file = self.image.bytes("superblock");
        for copy in 0..COPIES {
            let at = slot_offset(Epoch(self.superblock.epoch.0 + which as u64 % 2), copy) as usize;
            let Some(slot) = file.get(at..at + SLOT_BYTES) else { continue };
            let mut slot = slot.to_vec();
            put(&mut slot, offset % 64, bytes);
            fix_checksum(&mut slot);
            self.image.overwrite("superblock", at, &slot);
        }
    }

    fn edit_record(&mut self, which: usize, offset: usize, bytes: &[u8]) {
        let file = self.image.bytes(&self.manifest);
        let frames = frames(&file, 0, MANIFEST_GRAIN_BYTES);
        let Some(frame) = frames.get(which % frames.len().max(1)).copied() else { return };
        self.rewrite_record(&file, frame, |body| put(body, offset % body.len().max(1), bytes));
    }

    fn rewrite_record(&mut self, file: &[u8], frame: Frame, change: impl FnOnce(&mut [u8])) {
        let owner = self.superblock.epoch.0;
        let seal = Seal::new(self.superblock.store, FrameKind::Manifest, owner);
        if let Some(bytes) = resealed(file, frame, MANIFEST_GRAIN_BYTES, seal, change) {
            let region = self.superblock.region_bytes as usize;
            for twin in [0, region] {
                self.image.overwrite(&self.manifest, frame.offset + twin, &bytes);
            }
        }
    }

    fn edit_batch(&mut self, which: usize, offset: usize, bytes: &[u8]) {
        let Some(name) = self.segments.get(which % self.segments.len().max(1)) else { return };
        let file = self.image.bytes(name);
        let header = file.get(..SEGMENT_HEADER_BYTES).map(SegmentHeader::decode);
        let Some(Ok(header)) = header else { return };
        let frames = frames(&file, SEGMENT_HEADER_BYTES, LOG_GRAIN_BYTES);
        let Some(frame) = frames.get(which / 3 % frames.len().max(1)).copied() else { return };
        let seal = Seal::new(self.superblock.store, FrameKind::Log, header.id.0);
        let edited = resealed(&file, frame, LOG_GRAIN_BYTES, seal, |body| {
            put(body, offset % body.len().max(1), bytes);
        });
        if let Some(edited) = edited {
            self.image.overwrite(name, frame.offset, &edited);
        }
    }

    /// Edits a block that the manifest names, and the checksum under which it is named.
    fn edit_block(&mut self, which: usize, offset: usize, bytes: &[u8]) {
        let file = self.image.bytes(&self.manifest);
        let frames = frames(&file, 0, MANIFEST_GRAIN_BYTES);
        let mut named = Vec::new();
        for frame in frames {
            for ptr in named_blocks(&file, frame) {
                named.push((frame, ptr));
            }
        }
        let Some((frame, ptr)) = named.get(which % named.len().max(1)).copied() else { return };
        let data = self.image.bytes("data");
        let at = ptr.offset() as usize;
        let Some(block) = data.get(at..at.saturating_add(ptr.bytes())) else { return };
        let mut block = block.to_vec();
        put(&mut block, offset % ptr.bytes(), bytes);
        fix_block(&mut block);
        self.image.overwrite("data", at, &block);
        let crc = block.last_chunk::<4>().copied().map_or(0, u32::from_le_bytes);
        let (mut old, mut new) = (Vec::new(), Vec::new());
        ptr.encode(&mut old);
        BlockPtr { crc, ..ptr }.encode(&mut new);
        self.rewrite_record(&file, frame, |body| {
            let place = body.windows(old.len()).position(|window| window == old);
            if let Some(place) = place {
                put(body, place, &new);
            }
        });
    }
}

/// The records from `start` on, while headers make sense.
fn frames(file: &[u8], start: usize, grain_bytes: u64) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut offset = start;
    while let Some(bytes) = file.get(offset..offset.saturating_add(FRAME_HEADER_BYTES)) {
        let Ok(header) = FrameHeader::decode_unchecked(bytes) else { break };
        frames.push(Frame { offset, header });
        offset = offset.saturating_add(header.frame_bytes(grain_bytes) as usize);
    }
    frames
}

fn body(file: &[u8], frame: Frame, grain_bytes: u64) -> Option<&[u8]> {
    let start = frame.offset.checked_add(FRAME_HEADER_BYTES)?;
    let end = frame.offset.checked_add(frame.header.frame_bytes(grain_bytes) as usize)?;
    file.get(start..end)
}

/// A record with a changed body and checksums that fit.
fn resealed(
    file: &[u8],
    frame: Frame,
    grain_bytes: u64,
    seal: Seal,
    change: impl FnOnce(&mut [u8]),
) -> Option<Vec<u8>> {
    let mut body = body(file, frame, grain_bytes)?.to_vec();
    change(body.get_mut(..frame.header.body_bytes as usize)?);
    let header = FrameHeader { body_crc: crc32c::crc32c(&body), ..frame.header };
    let mut bytes = header.encode(seal).to_vec();
    bytes.append(&mut body);
    Some(bytes)
}

fn named_blocks(file: &[u8], frame: Frame) -> Vec<BlockPtr> {
    let len = frame.header.body_bytes as usize;
    let body = body(file, frame, MANIFEST_GRAIN_BYTES).and_then(|body| body.get(..len));
    let record = body.map(|body| RecordBody::decode(body, frame.header.count));
    let Some(Ok(record)) = record else { return Vec::new() };
    let mut named = Vec::new();
    for edit in &record.edits {
        if let Edit::Index { index, .. } = edit {
            named.extend(index.main.top.iter().copied());
            named.extend(index.sorted_runs.iter().flat_map(|flush| flush.top.iter().copied()));
        }
    }
    named
}
