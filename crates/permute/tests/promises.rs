//! Properties that a result never has, whatever the request: an array of other sizes than were
//! asked for, read from another header than numpy reads, in pieces under some name, in the place of
//! a link, or unknown to the groups above it. Each check is shown a bug that it must find.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use esker_permute::job::{Job, Request};
use esker_permute::npy::Header;
use esker_permute::pattern::Pattern;
use esker_permute::planted::{self, Bug};
use esker_permute::resolve::resolve;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % end
    }
}

fn budget() -> u64 {
    std::env::var("ESKER_TEST_BUDGET").ok().and_then(|b| b.parse().ok()).unwrap_or(1)
}

fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}

/// A result that is an array has the sizes that were given.
fn sizes_are_kept() -> Result<(), String> {
    let mut random = Random(3);
    let pattern = Pattern::parse("(a b) (c d e) -> a b c d e").unwrap();
    let (mut arrays, mut others) = (0, 0);
    for _ in 0..20_000 * budget() {
        let shape = [random.below(9), random.below(40)];
        let mut sizes = BTreeMap::new();
        for name in ["a", "b", "c", "d", "e"] {
            let size = [0, 1, 1, 2, 3, 4, 5, 64][random.below(8) as usize];
            // Mostly all axes of a dimension but its first.
            if !(matches!(name, "a" | "c") && random.below(8) > 0) {
                sizes.insert(name.to_owned(), size);
            }
        }
        let Ok(resolved) = resolve(&pattern, &shape, false, &sizes) else { continue };
        let Some(found) = resolved.shape else {
            others += 1;
            continue;
        };
        arrays += 1;
        let case = || format!("{shape:?} {sizes:?}: {found:?}");
        ensure(found[..2].iter().product::<u64>() == shape[0], case)?;
        ensure(found[2..].iter().product::<u64>() == shape[1], case)?;
        for (name, size) in ["a", "b", "c", "d", "e"].iter().zip(&found) {
            ensure(sizes.get(*name).is_none_or(|wanted| wanted == size), case)?;
        }
    }
    assert!(arrays > 1000 && others > 1000, "{arrays} {others}");
    Ok(())
}

/// Of keys that repeat the last counts.
fn last_keys_count() -> Result<(), String> {
    let text = b"{'descr': '<i2', 'shape': (9,), 'fortran_order': False, 'shape': (2, 2)}";
    let length = [u8::try_from(text.len()).unwrap(), 0];
    let bytes = [b"\x93NUMPY\x01\x00", &length[..], text].concat();
    let (header, _) = Header::parse(&bytes).map_err(|error| error.to_string())?;
    ensure(header.shape == [2, 2], || format!("{:?}", header.shape))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A folder with an array in it, and a request for another.
fn request(folder: &Path, to: &str) -> Request {
    let items: Vec<u8> = (0..700 * 500_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(folder.join("from.raw"), items).unwrap();
    let mut request = Request::new(folder.join("from.raw"), "h w -> w h", folder.join(to));
    request.shape = Some(vec![700, 500]);
    request.dtype = Some("<u4".to_owned());
    request.memory = 128 << 10;
    request.force = true;
    request
}

/// Whether the file system of a folder has files without names.
fn has_unnamed(folder: &Path) -> bool {
    use rustix::fs::{Mode, OFlags, open};
    open(folder, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR).is_ok()
}

/// While a file is made there is nothing new in its folder: a kill would leave that.
fn nothing_has_a_name_before_the_end() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    if !has_unnamed(folder.path()) {
        // Without a bug to find: what is left is removed by the next, which is tried below.
        return ensure(!planted::is(Bug::NamedWhileWritten), String::new);
    }
    let job = Job::new(request(folder.path(), "to.npy")).unwrap();
    assert!(job.passes().len() > 1);
    let mut seen = Vec::new();
    let mut looks = 0;
    let look = &mut |_| {
        seen.extend(names(folder.path()).into_iter().filter(|name| name != "from.raw"));
        looks += 1;
        true
    };
    job.run(look).unwrap();
    job.run_unnamed(&mut |_| true).unwrap();
    assert!(looks > 0);
    ensure(seen.is_empty(), || format!("{seen:?}"))?;
    ensure(names(folder.path()) == ["from.raw", "to.npy"], || format!("{:?}", names(folder.path())))
}

/// What a process that was killed left of a folder of chunks is removed by the next one, and
/// nothing that another is still making.
fn what_was_left_is_removed() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(".to.zarr.1-0.part")).unwrap();
    fs::write(folder.path().join(".to.zarr.1-0.part/0.0"), "left over").unwrap();
    let mut request = request(folder.path(), "to.zarr");
    request.chunks = Some(vec![100, 100]);
    let job = Job::new(request).unwrap();
    // Another of the same name begins, and ends, while the first is at work.
    let mut has_begun = false;
    let outcome = job.run(&mut |_| {
        if !std::mem::replace(&mut has_begun, true) {
            job.run(&mut |_| true).unwrap();
        }
        true
    });
    outcome.map_err(|error| error.to_string())?;
    ensure(names(folder.path()) == ["from.raw", "to.zarr"], || {
        format!("{:?}", names(folder.path()))
    })
}

/// A link stays one.
fn links_are_written_through() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("far.npy", folder.path().join("near.npy")).unwrap();
    for _ in 0..2 {
        let job =
            Job::new(request(folder.path(), "near.npy")).map_err(|error| error.to_string())?;
        job.run(&mut |_| true).map_err(|error| error.to_string())?;
        let near = fs::symlink_metadata(folder.path().join("near.npy")).unwrap();
        ensure(near.is_symlink(), || "the link is gone".to_owned())?;
        ensure(folder.path().join("far.npy").is_file(), || "no file behind the link".to_owned())?;
    }
    Ok(())
}

/// Both versions' groups know the array, as it is now.
fn groups_know_what_is_in_them() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let group = folder.path().join("g");
    fs::create_dir(&group).unwrap();
    fs::write(group.join(".zgroup"), "{\"zarr_format\": 2}").unwrap();
    let copy = "{\"zarr_consolidated_format\": 1, \"metadata\": {\".zgroup\": {\"n\": 1e400}}}";
    fs::write(group.join(".zmetadata"), copy).unwrap();
    let new = "{\"node_type\": \"group\", \"zarr_format\": 3, \"consolidated_metadata\": \
               {\"kind\": \"inline\", \"must_understand\": false, \"metadata\": {}}}";
    fs::write(group.join("zarr.json"), new).unwrap();
    for (format, name, entry) in
        [(2, ".zmetadata", "\"to.zarr/.zarray\""), (3, "zarr.json", "\"to.zarr\"")]
    {
        let _ = fs::remove_dir_all(group.join("to.zarr"));
        let mut request = request(folder.path(), "g/to.zarr");
        request.chunks = Some(vec![100, 100]);
        request.zarr_format = Some(format);
        let report = Job::new(request).unwrap().run(&mut |_| true).unwrap();
        ensure(report.warnings.is_empty(), || format!("{:?}", report.warnings))?;
        let text = fs::read_to_string(group.join(name)).unwrap();
        ensure(text.contains(entry), || format!("{name}: {text}"))?;
        // A number that no float holds is as it was.
        let kept = fs::read_to_string(group.join(".zmetadata")).unwrap();
        ensure(kept.contains("1e400"), || kept.clone())?;
    }
    Ok(())
}

type Check = fn() -> Result<(), String>;

const CHECKS: [(Bug, Check); 6] = [
    (Bug::SizesMadeToFit, sizes_are_kept),
    (Bug::FirstKeyCounts, last_keys_count),
    (Bug::NamedWhileWritten, nothing_has_a_name_before_the_end),
    (Bug::LeftOversStay, what_was_left_is_removed),
    (Bug::LinkReplaced, links_are_written_through),
    (Bug::GroupsNotTold, groups_know_what_is_in_them),
];

#[test]
fn promises_are_kept() {
    for (bug, check) in CHECKS {
        let kept = check();
        assert!(kept.is_ok(), "as if {bug:?} were there: {kept:?}");
    }
}

#[test]
fn planted_bugs_are_found() {
    assert_eq!(CHECKS.map(|(bug, _)| bug), Bug::ALL);
    for (bug, check) in CHECKS {
        let found = planted::with(bug, check);
        assert!(found.is_err(), "{bug:?} was not found");
    }
}
