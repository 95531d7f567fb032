use esker_device::memory::MemoryDevice;

use super::*;

fn seqs(numbers: &[u64]) -> BTreeSet<Seq> {
    numbers.iter().copied().map(Seq).collect()
}

fn of(numbers: &[u64], earliest: u64) -> Kept {
    Kept { numbers: seqs(numbers), earliest: Some(Moment(earliest)) }
}

/// A writer that has not replayed its log.
fn opening(device: &MemoryDevice) -> Followers {
    Followers::open(&(Arc::new(device.clone()) as _)).unwrap().unwrap()
}

/// A writer whose log ends with this number.
fn open(device: &MemoryDevice, last: u64) -> Followers {
    let writer = opening(device);
    writer.replayed(Seq(last));
    writer
}

#[test]
fn a_merge_finds_the_numbers_of_all_followers() {
    let device = MemoryDevice::new();
    assert!(Cell::join(&device).is_none(), "there is no writer");
    let writer = open(&device, 5);
    assert_eq!(writer.kept(Seq(5)), Kept::default());
    let (one, two) = (Cell::join(&device).unwrap(), Cell::join(&device).unwrap());
    assert_eq!(one.keep(&seqs(&[3, 5]), Moment(70)), seqs(&[]));
    assert_eq!(two.keep(&seqs(&[4]), Moment(60)), seqs(&[]));
    assert_eq!(writer.kept(Seq(9)), of(&[3, 4, 5], 60));
    assert_eq!((one.asked(), one.passed()), (Seq(9), Seq(5)));
    one.keep(&seqs(&[5, 8]), Moment(80));
    drop(two);
    assert_eq!(writer.kept(Seq(7)), of(&[5, 8], 80));
    assert_eq!(one.asked(), Seq(9), "it does not go back");
}

#[test]
fn a_number_without_a_place_is_named() {
    let device = MemoryDevice::new();
    let writer = open(&device, 0);
    let cell = Cell::join(&device).unwrap();
    let all: BTreeSet<Seq> = (1..=NUMBERS_MAX as u64 + 2).map(Seq).collect();
    assert_eq!(cell.keep(&all, Moment(1)), seqs(&[63, 64]));
    let kept = writer.kept(Seq(0)).numbers;
    assert_eq!((kept.len(), kept.last().copied()), (NUMBERS_MAX, Some(Seq(62))));
}

#[test]
fn the_cell_of_a_process_that_died_is_free() {
    let device = MemoryDevice::new();
    let writer = open(&device, 0);
    let dead = Cell::join(&device).unwrap();
    dead.keep(&seqs(&[7]), Moment(1));
    dead.shared.unlock(lock_of(dead.cell)).unwrap();
    assert_eq!(writer.kept(Seq(9)), Kept::default());
    std::mem::forget(dead);
    let next = Cell::join(&device).unwrap();
    assert_eq!(next.cell, 0);
}

#[test]
fn another_layout_is_not_taken_part_in() {
    let device = MemoryDevice::new();
    let _writer = open(&device, 0);
    let words = device.shared_words(FOLLOWERS_FILE, WORDS, false).unwrap().unwrap();
    words.store(LAYOUT_WORD, LAYOUT + 1);
    assert!(Cell::join(&device).is_none());
}

#[test]
fn no_number_is_missed_between_asking_and_keeping() {
    // The two orders of the protocol, by hand: one of both sides learns of the other.
    let device = MemoryDevice::new();
    let writer = open(&device, 3);
    let cell = Cell::join(&device).unwrap();
    cell.keep(&seqs(&[3]), Moment(0));
    assert!(writer.kept(Seq(8)).numbers.contains(&Seq(3)));
    cell.keep(&seqs(&[3, 5]), Moment(0));
    assert!(cell.asked() > Seq(5), "5 must not be relied on");
}

/// A writer has dropped what 300 needs and died; the next one opens the store. Whether a follower
/// takes 300 for kept.
fn is_certain_after_an_opening() -> bool {
    let device = MemoryDevice::new();
    let cell = {
        let writer = open(&device, 200);
        let cell = Cell::join(&device).unwrap();
        assert_eq!(writer.kept(Seq(500)), Kept::default());
        cell
    };
    let next = opening(&device);
    cell.keep(&seqs(&[300]), Moment(0));
    let is_certain = cell.asked() <= Seq(300);
    next.replayed(Seq(600));
    is_certain || cell.asked() <= Seq(300)
}

#[test]
fn a_writer_that_opens_makes_no_older_number_certain() {
    assert!(!is_certain_after_an_opening());
}

#[cfg(feature = "_planted")]
#[test]
fn finds_a_writer_that_forgets_what_was_asked() {
    assert!(planted::with(Bug::AskedForgotten, is_certain_after_an_opening));
}

#[test]
fn what_was_asked_is_at_most_the_last_number_of_the_log() {
    let device = MemoryDevice::new();
    let first = opening(&device);
    let cell = Cell::join(&device).unwrap();
    assert_eq!(cell.asked(), Seq(u64::MAX), "what was dropped before is not known");
    first.replayed(Seq(3));
    assert_eq!((cell.asked(), cell.passed()), (Seq(3), Seq(3)));
    assert_eq!(first.kept(Seq(9)), Kept::default());
    drop(first);
    // The operations after 7 were lost with the writer.
    let next = open(&device, 7);
    assert_eq!((cell.asked(), cell.passed()), (Seq(7), Seq(7)));
    assert_eq!(next.kept(Seq(8)), Kept::default());
    assert_eq!(cell.asked(), Seq(8));
}
