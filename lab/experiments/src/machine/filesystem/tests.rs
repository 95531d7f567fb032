use super::*;
use crate::machine::board::Board;
use crate::machine::disk::LayerKind;

fn files(kind: LayerKind) -> FileSystem {
    FileSystem::new(Disk::new(kind, Board::Plain, 16).unwrap())
}

fn written(fs: &FileSystem) -> [u64; 3] {
    fs.disk.writes().blocks
}

/// By hand: a file of three blocks is made, then one is written again.
#[test]
fn a_sync_writes_data_and_a_transaction_of_the_journal() {
    let mut fs = files(LayerKind::PageMapped);
    let id = fs.create("a", true);
    fs.write_cached(id, 0, &[1; 3 * BLOCK_BYTES]).unwrap();
    assert_eq!(written(&fs), [0; 3]);
    fs.sync(id, 0, false).unwrap();
    // Directory, inodes, their bitmap, group descriptors, bitmap of blocks; and two.
    assert_eq!(written(&fs), [3, 7, 0]);
    fs.write_cached(id, 5000, &[2; 10]).unwrap();
    fs.sync(id, 0, true).unwrap();
    assert_eq!(written(&fs), [4, 7, 0], "only a time changed");
    fs.write_cached(id, 5000, &[2; 10]).unwrap();
    fs.sync(id, 0, false).unwrap();
    assert_eq!(written(&fs), [5, 10, 0]);
    assert!(fs.delete("a") && !fs.delete("a") && fs.len(id).is_err());
    let other = fs.create("b", true);
    fs.sync(other, 0, false).unwrap();
    assert_eq!(written(&fs), [5, 10 + 8, 0], "and the superblock");
}

#[test]
fn space_ahead_changes_metadata_once_and_again_when_it_is_written() {
    let mut fs = files(LayerKind::PageMapped);
    let id = fs.create("a", true);
    fs.preallocate(id, 5 * PAGE_BYTES as u64).unwrap();
    fs.sync(id, 0, true).unwrap();
    assert_eq!((written(&fs), fs.len(id).unwrap()), ([0, 7, 0], 5 * PAGE_BYTES as u64));
    for journal in [10, 10] {
        fs.write_cached(id, 0, &[1; 10]).unwrap();
        fs.sync(id, 0, true).unwrap();
        assert_eq!(written(&fs)[1], journal, "the inode, once");
    }
}

#[test]
fn cached_files_are_read_as_they_were_written() {
    let mut fs = files(LayerKind::PageMapped);
    let id = fs.create("a", true);
    fs.write_cached(id, 10, &[7; 20]).unwrap();
    let mut read = [1; 40];
    assert_eq!(fs.read_cached(id, 5, &mut read).unwrap(), 25);
    assert_eq!((read[0], read[5], read[24], read[25]), (0, 7, 7, 1));
    fs.truncate(id, 12).unwrap();
    assert_eq!((fs.len(id).unwrap(), fs.read_cached(id, 12, &mut read).unwrap()), (12, 0));
    fs.write_cached(id, 14, &[7; 1]).unwrap();
    assert_eq!(fs.read_cached(id, 11, &mut read).unwrap(), 4);
    assert_eq!(read[..4], [7, 0, 0, 7]);
}

#[test]
fn what_is_on_the_device_is_what_was_synced() {
    let mut fs = files(LayerKind::PageMapped);
    let id = fs.create("a", true);
    let bytes: Vec<u8> = (0..50_000_u32).map(|at| (at / 7) as u8).collect();
    fs.write_cached(id, 0, &bytes).unwrap();
    fs.sync(id, 0, false).unwrap();
    let mut page = vec![0; PAGE_BYTES];
    for (number, wanted) in bytes.chunks(PAGE_BYTES).enumerate() {
        let (place, is_new) = fs.place(id, number).unwrap();
        assert!(!is_new);
        fs.disk.read(0, place, &mut page, None).unwrap();
        assert_eq!(&page[..wanted.len()], wanted);
    }
    fs.disk.layer().as_ftl().check().unwrap();
}

#[test]
fn space_is_given_back_and_runs_out() {
    let mut fs = files(LayerKind::PageMapped);
    for _ in 0..3 {
        let id = fs.create("large", true);
        let most = (fs.disk.blocks() - DATA_AT) as usize * BLOCK_BYTES;
        fs.write_cached(id, 0, &vec![1; most - PAGE_BYTES]).unwrap();
        fs.sync(id, 0, false).unwrap();
        fs.write_cached(id, most as u64, &[1; 2 * PAGE_BYTES]).unwrap();
        assert!(matches!(fs.sync(id, 0, false), Err(Error::Full(_))));
        assert!(fs.delete("large"));
    }
}

#[test]
fn transactions_take_their_metadata_with_them() {
    for kind in [LayerKind::XFtl, LayerKind::MvFtl] {
        let mut fs = files(kind);
        let id = fs.create("a", false);
        fs.sync_metadata(0).unwrap();
        let before = written(&fs);
        let (tx, _) = fs.disk.begin(0).unwrap();
        let (reader, _) = fs.disk.begin(0).unwrap();
        fs.write_direct(id, 0, (0, &[3; PAGE_BYTES]), tx).unwrap();
        fs.abort(0, reader).unwrap();
        fs.commit(0, tx).unwrap();
        // Inodes, group descriptors, bitmap of blocks.
        let after = written(&fs);
        assert_eq!([after[0] - before[0], after[1] - before[1], after[2]], [2, 0, 3]);
        let mut read = [0; 20];
        fs.read_direct(id, 0, (PAGE_BYTES as u64 - 10, &mut read), None).unwrap();
        assert_eq!((read[9], read[10]), (3, 0));
        let (tx, _) = fs.disk.begin(0).unwrap();
        fs.write_direct(id, 0, (0, &[4; PAGE_BYTES]), tx).unwrap();
        fs.commit(0, tx).unwrap();
        assert_eq!(written(&fs)[2], 4, "it had its place");
        assert!(fs.write_direct(id, 0, (5, &[4; 10]), tx).is_err());
    }
}

#[test]
fn a_file_that_is_put_there_is_read_either_way() {
    let bytes: Vec<u8> = (0..3 * PAGE_BYTES).map(|at| (at / 11) as u8).collect();
    for (kind, is_cached) in [(LayerKind::PageMapped, true), (LayerKind::MvFtl, false)] {
        let mut fs = files(kind);
        fs.install("a", &bytes, is_cached).unwrap();
        let id = fs.named("a").unwrap();
        let mut read = vec![0; 1000];
        if is_cached {
            fs.read_cached(id, 8000, &mut read).unwrap();
        } else {
            fs.read_direct(id, 0, (8000, &mut read), None).unwrap();
        }
        assert_eq!(read, bytes[8000..9000]);
        assert_eq!(fs.len(id).unwrap(), bytes.len() as u64);
    }
}
