use super::*;
use crate::Error;

fn put(key: u8, value: u8) -> Put {
    ([key; 16], [value; 100])
}

fn value(value: u8) -> Option<Vec<u8>> {
    Some(vec![value; 100])
}

fn scanned(view: &dyn View, from: &[u8], entries: u64) -> Vec<(u8, u8)> {
    let mut seen = Vec::new();
    view.scan(from, entries, &mut |key, value| seen.push((key[0], value[0]))).unwrap();
    seen
}

#[test]
fn names_are_read_back() {
    assert!(Way::ALL.iter().all(|way| Way::parse(way.as_str()) == Some(*way)));
    assert_eq!(Way::parse("sled"), None);
}

#[test]
fn a_way_that_is_not_built_says_so() {
    for way in Way::ALL.into_iter().filter(|way| !way.is_built()) {
        let error = open(way, Path::new("/nonexistent"), 1 << 20, None).err().unwrap();
        assert!(matches!(error, Error::NotBuilt(_)), "{error}");
    }
}

#[test]
fn without_history_the_past_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(Way::Plain, folder.path(), 4 << 20, None).unwrap();
    let version = store.commit(1, &[put(1, 1)]).unwrap();
    assert_eq!(store.now().unwrap().get(&[1; 16]).unwrap(), value(1));
    let past = store.at(version).err().unwrap();
    assert_eq!(past.to_string(), "plain cannot read earlier versions");
    assert!(store.history(&[1; 16], &mut |_, _| ()).is_err());
    store.close().unwrap();
}

/// Every way that is built answers the same, from memory, from files and reopened.
#[test]
fn every_way_keeps_every_version() {
    let ways = Way::ALL.into_iter().filter(|way| way.is_built() && way.has_history());
    for way in ways {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(way, folder.path(), 4 << 20, None).unwrap();
        let mut versions = vec![store.commit(1, &[put(1, 10), put(2, 20), put(1, 11)]).unwrap()];
        for number in 2..=40 {
            versions.push(store.commit(number, &[put(1, 10 + number as u8)]).unwrap());
        }
        versions.push(store.commit(41, &[put(3, 30)]).unwrap());
        let (first, last) = (versions[0], versions[40]);
        for round in 0..3 {
            match round {
                0 => {}
                1 => drop(store.wait_idle().unwrap()),
                _ => {
                    store.persist().unwrap();
                    store.close().unwrap();
                    store = open(way, folder.path(), 4 << 20, None).unwrap();
                }
            }
            let get = |version, key: u8| store.at(version).unwrap().get(&[key; 16]).unwrap();
            assert_eq!((get(first, 1), get(first, 2), get(first, 3)), (value(11), value(20), None));
            assert_eq!(get(versions[20], 1), value(31), "{way}, round {round}");
            let now = store.now().unwrap();
            assert_eq!((now.get(&[1; 16]).unwrap(), now.get(&[9; 16]).unwrap()), (value(50), None));
            assert_eq!(scanned(now.as_ref(), &[], 9), [(1, 50), (2, 20), (3, 30)], "{way}");
            let past = store.at(versions[20]).unwrap();
            assert_eq!(scanned(past.as_ref(), &[0; 16], 9), [(1, 31), (2, 20)], "{way}");
            assert_eq!(scanned(past.as_ref(), &[1; 16], 1), [(1, 31)], "{way}");
            assert_eq!(scanned(past.as_ref(), &[2; 16], 9), [(2, 20)], "{way}");
            let mut changes = Vec::new();
            let mut see =
                |version, value: Option<&[u8]>| changes.push((version, value.unwrap()[0]));
            store.history(&[1; 16], &mut see).unwrap();
            assert_eq!(
                (changes.len(), changes[0], changes[39]),
                (40, (versions[39], 50), (first, 11))
            );
            assert!(last > versions[39]);
        }
        store.figures().unwrap();
        store.close().unwrap();
    }
}
