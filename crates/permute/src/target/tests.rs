use super::*;
use crate::file::Sink as _;

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_has_no_name_until_it_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    for make in [Target::create as fn(&Path, u64) -> Result<Target>, |path, _| Target::hidden(path)]
    {
        let target = make(&path, 5).unwrap();
        assert!(target.hidden.is_some() || names(folder.path()).is_empty());
        target.file().write_part(0, b"first").unwrap();
        target.commit(&path, false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        let target = make(&path, 0).unwrap();
        target.file().write_part(0, b"2nd").unwrap();
        let refused = target.commit(&path, false).unwrap_err().to_string();
        assert!(refused.contains("--force"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        let target = make(&path, 0).unwrap();
        target.file().write_part(0, b"2nd").unwrap();
        target.commit(&path, true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"2nd");
        assert_eq!(names(folder.path()), ["a"]);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn what_a_killed_process_left_is_removed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    let working = Target::hidden(&path).unwrap();
    for left in [".a.npy.1-0.part", ".a.npy.999999-3.part", ".b.npy.1-0.part", ".a.npy.x.part"] {
        std::fs::write(folder.path().join(left), "left over").unwrap();
    }
    std::fs::create_dir(folder.path().join(".a.npy.2-7.part")).unwrap();
    std::fs::write(folder.path().join(".a.npy.2-7.part/chunk"), "left over").unwrap();
    let next = Target::hidden(&path).unwrap();
    let mut expected = vec![".a.npy.x.part".to_owned(), ".b.npy.1-0.part".to_owned()];
    for target in [&working, &next] {
        let hidden = target.hidden.as_ref().unwrap().file_name().unwrap();
        expected.push(hidden.to_str().unwrap().to_owned());
    }
    expected.sort();
    assert_eq!(names(folder.path()), expected);
}

#[test]
fn links_are_followed_to_what_need_not_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink("there", at("one")).unwrap();
    std::os::unix::fs::symlink(at("one"), at("two")).unwrap();
    std::os::unix::fs::symlink("circle", at("circle")).unwrap();
    assert_eq!(behind_links(&at("two")).unwrap(), at("there"));
    assert_eq!(behind_links(&at("two/")).unwrap(), at("there"));
    assert_eq!(behind_links(&at("plain")).unwrap(), at("plain"));
    assert!(behind_links(&at("circle")).is_err());
}
