//! docs/format/pages.md is enough to read a page store: its examples are one, and a reader that was
//! written after the page finds in stores what was written to them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/session.rs"]
mod session;

use std::collections::BTreeMap;

use common::*;
use esker_device::sim::SimDevice;
use esker_format::bytes::Reader;
use esker_format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, Seal};
use esker_format::ids::StoreId;
use esker_harness::counts::budget;
use esker_pages::{Durability, Options};
use session::Session;

const PAGE: &str = include_str!("../../../docs/format/pages.md");

/// The bytes of an example.
fn example(name: &str) -> Vec<u8> {
    let (_, after) = PAGE.split_once(&format!("```hex {name}\n")).unwrap();
    let (text, _) = after.split_once("\n```").unwrap();
    let mut bytes = Vec::new();
    for line in text.lines() {
        let code = line.split(';').next().unwrap().trim();
        let (code, count) = code.split_once(" × ").unwrap_or((code, "1"));
        let words = code.split_whitespace().map(|word| u8::from_str_radix(word, 16).unwrap());
        let words: Vec<u8> = words.collect();
        bytes.extend(words.repeat(count.parse().unwrap()));
    }
    bytes
}

/// The superblock of the checkpoint before.
fn superblock_before() -> Vec<u8> {
    let mut bytes = example("page superblock");
    bytes[32] -= 1;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..20]), &bytes[24..]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The store that the examples are.
fn example_store() -> Vec<u8> {
    let mut bytes = vec![0; 5 * 16 * 1024];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    for at in [0, 8192] {
        put(at, &superblock_before());
        put(at + 4096, &example("page superblock"));
    }
    put(96 * 512, &example("page roots"));
    put(104 * 512, &example("page leaf"));
    put(16 * 1024, &example("page commit"));
    put(128 * 512, &[b'a'; 512]);
    put(129 * 512, &[b'b'; 512]);
    bytes
}

/// What the page says of it: version 7, called monday, and version 8.
fn example_versions() -> [Contents; 2] {
    let mut monday = Contents { page_size: 512, pages: vec![vec![b'a'; 512], vec![0; 512]] };
    monday.write(1, 2, b"ada");
    let mut newest = monday.clone();
    newest.write(0, 24, &[0, 0, 0, 8]);
    newest.write(2, 0, &[b'b'; 512]);
    [monday, newest]
}

#[test]
fn the_examples_of_the_page_are_a_store() {
    let device = SimDevice::from_files(&[(FILE.to_owned(), example_store())].into());
    let store = open(&device, &Options::default()).unwrap();
    let [monday, newest] = example_versions();
    let snapshot = store.pin();
    assert_eq!((snapshot.version(), read_all(&snapshot).unwrap()), (8, newest));
    let snapshot = store.at_named("monday").unwrap();
    assert_eq!((snapshot.version(), read_all(&snapshot).unwrap()), (7, monday));
    assert!(store.check().unwrap().accounted);
}

/// A page as a version has it: sector, checksum, delta.
type Place = (u32, u32, Vec<u8>);

/// A version as the page describes it.
#[derive(Clone, Debug, Default)]
struct Version {
    number: u64,
    names: Vec<String>,
    page_size: u32,
    pages: u32,
    map: BTreeMap<u32, Place>,
}

/// What changes become of a version.
type Prepared = Option<Version>;

/// A file, read as the page says.
struct ByThePage<'a> {
    file: &'a [u8],
    named: Vec<Version>,
    newest: Version,
    prepared: Prepared,
}

impl<'a> ByThePage<'a> {
    fn read(file: &'a [u8]) -> Self {
        let (epoch, block) = superblock(file);
        let mut fields = Reader::new(&block[24..]);
        let store = StoreId(fields.u64().unwrap());
        assert_eq!(fields.u64().unwrap(), epoch);
        let number = fields.u64().unwrap();
        let [segment, first, second] = [(); 3].map(|()| fields.u32().unwrap());
        let word_at = |at: usize| u64::from(word(&block[at..]));
        // Format 1 has zeros there.
        let grain = if word_at(16) == 2 { word_at(76) } else { 512 };
        assert_eq!(word_at(72), u64::from(word_at(16) == 2));
        let mut read = Self { file, named: Vec::new(), newest: Version::default(), prepared: None };
        let [sector, bytes, crc] = [(); 3].map(|()| fields.u32().unwrap());
        read.roots(read.checked(sector, bytes, crc));
        for record in read.log((store, epoch, grain), number, [segment, first, second]) {
            read.record(&record);
        }
        read
    }

    /// Bytes that a reference leads to.
    fn checked(&self, sector: u32, bytes: u32, crc: u32) -> &'a [u8] {
        let found = &self.file[sector as usize * 512..][..bytes as usize];
        assert_eq!(crc32c::crc32c(found), crc);
        found
    }

    fn roots(&mut self, list: &[u8]) {
        let mut list = Reader::new(list);
        for _ in 0..list.u32().unwrap() {
            let number = list.u64().unwrap();
            let [page_size, pages] = [(); 2].map(|()| list.u32().unwrap());
            let height = u32::from(list.u8().unwrap());
            let names = (0..list.u8().unwrap()).map(|_| text(&mut list)).collect();
            let mut version = Version { number, names, page_size, pages, ..Version::default() };
            let top = [(); 4].map(|()| list.u32().unwrap());
            self.node(top, height, 0, &mut version.map);
            self.newest = version.clone();
            self.named.push(version);
        }
        list.finish().unwrap();
        self.named.retain(|version| !version.names.is_empty());
    }

    /// Adds the pages from `first` on that a node maps.
    fn node(&self, at: [u32; 4], height: u32, first: u32, map: &mut BTreeMap<u32, Place>) {
        let [sector, bytes, crc, count] = at;
        if sector == 0 {
            return;
        }
        let mut node = Reader::new(self.checked(sector, bytes, crc));
        for index in 0..count {
            if height == 0 {
                let [slot, crc] = [(); 2].map(|()| node.u32().unwrap());
                map.insert(first + index, (slot, crc, Vec::new()));
            } else {
                let child = [(); 4].map(|()| node.u32().unwrap());
                let step = 512 * 256_u32.pow(height - 1);
                self.node(child, height - 1, first + index * step, map);
            }
        }
        while height == 0 && !node.is_empty() {
            let page = first + node.varint_u32().unwrap();
            let delta = node.byte_string(usize::MAX).unwrap().to_vec();
            map.entry(page).or_default().2 = delta;
        }
        node.finish().unwrap();
    }

    /// The records of the log, up to the first frame that does not fit.
    fn log(&self, of: (StoreId, u64, u64), first: u64, at: [u32; 3]) -> Vec<Vec<u8>> {
        let (store, epoch, grain) = of;
        let [segment_bytes, mut segment, mut following] = at;
        let (mut place, mut offset) = (0, 0);
        let mut records: Vec<Vec<u8>> = Vec::new();
        for number in first.. {
            let start = segment as usize * segment_bytes as usize;
            let rest = &self.file[start + offset..start + segment_bytes as usize];
            let seal = Seal::new(store, FrameKind::Log, (epoch << 24) + place);
            let Ok(header) = FrameHeader::decode(rest, seal) else { break };
            let len = header.frame_bytes(grain) as usize;
            let body = &rest[FRAME_HEADER_BYTES..len];
            if header.number != number || header.check_body(body).is_err() {
                break;
            }
            assert!(header.mark < number);
            let body = &body[..header.body_bytes as usize];
            if body[0] & 1 != 0 {
                records.push(Vec::new());
            }
            let (page_bytes, part) = if body[0] & 4 == 0 { (0, 5) } else { (word(&body[5..]), 9) };
            records.last_mut().unwrap().extend_from_slice(&body[part..]);
            following = if offset == 0 { word(&body[1..]) } else { following };
            assert_eq!(word(&body[1..]), following);
            offset += len + page_bytes as usize;
            if offset == segment_bytes as usize {
                (segment, place, offset) = (following, place + 1, 0);
            }
        }
        records
    }

    fn record(&mut self, record: &[u8]) {
        let mut reader = Reader::new(record);
        match reader.u8().unwrap() {
            1 => self.newest = self.changed(&mut reader),
            2 => {
                text(&mut reader);
                self.prepared = Some(self.changed(&mut reader));
            }
            3 => {
                let prepared = self.prepared.take().unwrap();
                if reader.u8().unwrap() == 1 {
                    self.newest = prepared;
                }
            }
            4 => {
                assert_eq!(reader.u64().unwrap(), self.newest.number);
                let names = vec![text(&mut reader)];
                self.named.push(Version { names, ..self.newest.clone() });
            }
            _ => {
                let name = text(&mut reader);
                self.named.iter_mut().for_each(|version| version.names.retain(|own| *own != name));
            }
        }
        reader.finish().unwrap();
    }

    /// The newest version with changes.
    fn changed(&self, changes: &mut Reader<'_>) -> Version {
        let mut version = Version { names: Vec::new(), ..self.newest.clone() };
        version.number = changes.u64().unwrap();
        assert_eq!(version.number, self.newest.number + 1);
        let flags = changes.u8().unwrap();
        version.page_size = changes.u32().unwrap();
        version.pages = changes.u32().unwrap();
        let kept = changes.u32().unwrap();
        version.map.retain(|page, _| flags & 1 == 0 && *page < kept);
        let mut next = 0;
        for _ in 0..changes.varint().unwrap() {
            let page = next + changes.varint_u32().unwrap();
            next = page + 1;
            match changes.varint().unwrap() {
                0 => {
                    let [slot, crc] = [(); 2].map(|()| changes.u32().unwrap());
                    version.map.insert(page, (slot, crc, Vec::new()));
                }
                len => {
                    let delta = changes.take(len as usize - 1).unwrap().to_vec();
                    version.map.entry(page).or_default().2 = delta;
                }
            }
        }
        version
    }

    fn page(&self, version: &Version, number: u32) -> Vec<u8> {
        let (slot, crc, delta) = version.map.get(&number).cloned().unwrap_or_default();
        let mut page = vec![0; version.page_size as usize];
        if slot != 0 {
            page.copy_from_slice(self.checked(slot, version.page_size, crc));
        }
        let (mut delta, mut at) = (Reader::new(&delta), 0);
        while !delta.is_empty() {
            at += delta.varint().unwrap() as usize;
            let len = delta.varint().unwrap() as usize;
            page[at..at + len].copy_from_slice(delta.take(len).unwrap());
            at += len;
        }
        page
    }

    fn contents(&self, version: &Version) -> Contents {
        let pages = (0..version.pages).map(|number| self.page(version, number)).collect();
        Contents { page_size: version.page_size, pages }
    }
}

/// The valid superblock of the greatest epoch.
fn superblock(file: &[u8]) -> (u64, &[u8]) {
    let copies = [0, 4096, 8192, 12_288].map(|at| &file[at..at + 512]);
    let valid = copies.into_iter().filter(|copy| {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&copy[..20]), &copy[24..]);
        copy.starts_with(b"Esker page store") && word(&copy[20..]) == crc
    });
    let epoch = |copy: &[u8]| u64::from_le_bytes(copy[32..40].try_into().unwrap());
    valid.map(|copy| (epoch(copy), copy)).max_by_key(|(epoch, _)| *epoch).unwrap()
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

fn text(reader: &mut Reader<'_>) -> String {
    String::from_utf8(reader.byte_string(65_536).unwrap().to_vec()).unwrap()
}

#[test]
fn the_reader_of_the_page_reads_its_examples() {
    let file = example_store();
    let read = ByThePage::read(&file);
    let [monday, newest] = example_versions();
    assert_eq!((read.newest.number, read.contents(&read.newest)), (8, newest));
    assert_eq!(read.named[0].names, ["monday"]);
    assert_eq!((read.named[0].number, read.contents(&read.named[0])), (7, monday));
}

/// After every twentieth operation the file is read by the page alone.
#[test]
fn stores_can_be_read_by_the_page_alone() {
    let mut judged = 0;
    for seed in 0..20 * budget() {
        let options = small_of(seed / 2);
        let options = Options { delta_bytes: options.delta_bytes * (seed % 2), ..options };
        let mut session = Session::start(disk(), options).unwrap();
        for (at, op) in history(seed, 400, 60).iter().enumerate() {
            session.apply(op).unwrap();
            if at % 20 != 19 {
                continue;
            }
            let file = session.device.image().files().remove(FILE).unwrap();
            let read = ByThePage::read(&file);
            assert_eq!(read.newest.number, session.newest(), "seed {seed}, after {at}");
            assert_eq!(read.contents(&read.newest), *session.contents(), "seed {seed}, {at}");
            let mut names = Names::new();
            for (n, version) in (0..3).flat_map(|n| read.named.iter().map(move |v| (n, v))) {
                if version.names.contains(&name(n)) {
                    names.insert(n, (version.number, read.contents(version)));
                }
            }
            assert_eq!(names, session.names, "seed {seed}, after {at}");
            judged += 1;
        }
    }
    count("files read by the format page alone", 20 * budget(), judged);
}

/// Trees of every height that a test has room for, with most of their children missing.
#[test]
fn maps_of_large_databases_can_be_read_by_the_page_alone() {
    let mut written = Vec::new();
    for last in [511, 600, 131_100, 40_000_000] {
        let device = disk();
        let store = open(&device, &small()).unwrap();
        written.push(last);
        let mut writer = store.begin(&store.pin()).unwrap();
        for page in &written {
            writer.write(*page, 0, &[1; 512]).unwrap();
            writer.write(*page, 7, &page.to_le_bytes()).unwrap();
        }
        writer.commit(Durability::Full).unwrap();
        store.checkpoint().unwrap();
        let file = device.image().files().remove(FILE).unwrap();
        let read = ByThePage::read(&file);
        assert_eq!(read.newest.pages, last + 1);
        let is_mapped = |place: &Place| place.0 != 0 || !place.2.is_empty();
        let mapped = read.newest.map.iter().filter(|(_, place)| is_mapped(place));
        assert_eq!(mapped.map(|(page, _)| *page).collect::<Vec<_>>(), written);
        for page in &written {
            let bytes = read.page(&read.newest, *page);
            assert_eq!((bytes[6], word(&bytes[7..]), bytes[11]), (1, *page, 1));
        }
    }
}
