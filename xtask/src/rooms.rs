//! The rooms of a crate, and which of its files import each other.
//!
//! A room is a set of files of a crate, by the beginnings of their paths; of two that fit, the
//! longer one counts. Rooms may import those that the table names. An import through `lib.rs`
//! counts as none: what a crate hands on there is for everyone. A file and its submodules count as
//! one another's: importing one's own submodule is no import. Methods that one file implements for
//! a type of another are no imports either: no path leads to them.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Span;
use syn::visit::{self, Visit};

use crate::tree::File;
use crate::{Finding, Result, Tree};

/// A part of a crate.
struct Room {
    name: &'static str,
    /// Beginnings of paths below the crate's `src`.
    files: &'static [&'static str],
    /// The rooms whose files it may import, besides its own.
    may_use: &'static [&'static str],
}

/// The rooms of a crate, and the most files that may import each other in a circle.
struct House {
    folder: &'static str,
    /// None: any file may import any other.
    rooms: &'static [Room],
    circle_files_max: usize,
}

/// What all kinds of index share.
const SHARED: &[&str] =
    &["build", "check", "history", "job", "kind", "merge", "read", "record", "run", "upkeep"];

/// The rooms of the index.
const INDEX: &[Room] = &[
    Room { name: "fault", files: &["fault.rs"], may_use: &[] },
    Room { name: "history", files: &["history/"], may_use: &["kind", "record", "upkeep"] },
    Room { name: "job", files: &["job.rs"], may_use: &[] },
    Room { name: "run", files: &["run/"], may_use: &[] },
    Room { name: "read", files: &["read/"], may_use: &["job", "run", "upkeep"] },
    Room { name: "build", files: &["build/"], may_use: &["read", "run"] },
    Room { name: "check", files: &["check/"], may_use: &["build", "read", "run"] },
    Room { name: "upkeep", files: &["upkeep/"], may_use: &["job", "kind", "merge", "read", "run"] },
    Room { name: "record", files: &["record.rs"], may_use: &["fault", "kind", "upkeep"] },
    Room {
        name: "merge",
        files: &["merge/"],
        may_use: &["build", "fault", "job", "kind", "read", "record", "run", "upkeep"],
    },
    Room {
        name: "kind",
        files: &["kind/"],
        may_use: &["check", "fdtree", "history", "lsm", "merge", "read", "record", "run", "upkeep"],
    },
    Room { name: "fdtree", files: &["fdtree/"], may_use: SHARED },
    Room { name: "lsm", files: &["lsm/"], may_use: SHARED },
    Room { name: "index", files: &["index.rs"], may_use: SHARED },
];

/// The rooms of the page store.
const PAGES: &[Room] = &[
    Room {
        name: "base",
        files: &["counters.rs", "error.rs", "options.rs", "place.rs", "planted.rs"],
        may_use: &[],
    },
    Room { name: "media", files: &["media/"], may_use: &["base"] },
    Room { name: "version", files: &["version/"], may_use: &["base"] },
    // What is used for what, in memory alone.
    Room {
        name: "space",
        files: &["alloc/mover.rs", "alloc/space/"],
        may_use: &["base", "version"],
    },
    // The bytes of the log, and reading them.
    Room {
        name: "records",
        files: &[
            "log/frames.rs",
            "log/notes.rs",
            "log/record.rs",
            "log/scan.rs",
            "log/shared.rs",
            "log/superblock.rs",
        ],
        may_use: &["base", "media", "version"],
    },
    // What processes that have one store open tell each other.
    Room { name: "meeting", files: &["meeting/"], may_use: &["base", "records"] },
    // The state that all share, and the way to allocate that it holds.
    Room {
        name: "engine",
        files: &["alloc/allocation.rs", "engine.rs"],
        may_use: &["base", "media", "meeting", "version", "space", "records"],
    },
    Room {
        name: "alloc",
        files: &["alloc/"],
        may_use: &["base", "version", "space", "records", "engine"],
    },
    Room {
        name: "log",
        files: &["log/"],
        may_use: &["base", "media", "meeting", "version", "space", "records", "engine", "alloc"],
    },
    Room {
        name: "handles",
        files: &["snapshot.rs", "writer.rs"],
        may_use: &["base", "version", "engine"],
    },
    Room {
        name: "commit",
        files: &["commit/"],
        may_use: &["base", "version", "records", "engine", "log", "handles"],
    },
    Room {
        name: "store",
        files: &[
            "check.rs",
            "lib.rs",
            "shared_store.rs",
            "stats.rs",
            "store.rs",
            "store_file.rs",
            "store_file/",
            "thread.rs",
            "versioned.rs",
        ],
        may_use: &[
            "base", "media", "meeting", "version", "space", "records", "engine", "alloc", "log",
            "handles", "commit",
        ],
    },
];

const HOUSES: [House; 4] = [
    House { folder: "crates/index/src/", rooms: INDEX, circle_files_max: 1 },
    House { folder: "crates/store/src/", rooms: &[], circle_files_max: 3 },
    House { folder: "crates/flash/src/", rooms: &[], circle_files_max: 1 },
    House { folder: "crates/pages/src/", rooms: PAGES, circle_files_max: 2 },
];

/// A path in a file that leads to another file of its crate: its line, and where it leads.
struct Import {
    line: usize,
    file: String,
}

/// Checks the arrows between rooms, and the circles of files.
pub fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for house in &HOUSES {
        findings.extend(judge(house, &tree.ending_in(&[".rs"]).collect::<Vec<_>>())?);
    }
    Ok(findings)
}

fn judge(house: &House, files: &[&File]) -> Result<Vec<Finding>> {
    let inside = |file: &&&File| {
        let path = file.path.strip_prefix(house.folder);
        path.is_some_and(|path| !path.starts_with("tests/") && !path.ends_with("tests.rs"))
    };
    let files: Vec<_> = files.iter().filter(inside).collect();
    let known: BTreeSet<&str> = files
        .iter()
        .map(|file| relative(house, &file.path))
        .filter(|path| *path != "lib.rs")
        .collect();
    let mut arrows = BTreeMap::new();
    let mut findings = Vec::new();
    for file in files {
        let path = relative(house, &file.path);
        if path != "lib.rs" && !house.rooms.is_empty() && room_of(house.rooms, path).is_none() {
            let what = "has no room in xtask/src/rooms.rs: decide its place".to_owned();
            findings.push(Finding { file: file.path.clone(), line: 0, what });
        }
        let imports =
            imports(path, &file.text, &known).map_err(|error| format!("{}: {error}", file.path))?;
        for import in &imports {
            if let Some(what) = forbidden(house.rooms, path, &import.file) {
                findings.push(Finding { file: file.path.clone(), line: import.line, what });
            }
        }
        arrows.insert(path, imports.into_iter().map(|import| import.file).collect::<BTreeSet<_>>());
    }
    for circle in circles(&arrows) {
        if circle.len() > house.circle_files_max {
            let file = house.folder.to_owned();
            let what = format!(
                "{} files import each other, and {} may: {}",
                circle.len(),
                house.circle_files_max,
                circle.join(", ")
            );
            findings.push(Finding { file, line: 0, what });
        }
    }
    Ok(findings)
}

fn relative<'a>(house: &House, path: &'a str) -> &'a str {
    path.strip_prefix(house.folder).unwrap_or_default()
}

/// The room that the longest beginning of a path gives.
fn room_of<'a>(rooms: &'a [Room], path: &str) -> Option<&'a Room> {
    let fits = |room: &Room| {
        let lengths = room.files.iter().filter(|start| path.starts_with(**start));
        lengths.map(|start| start.len()).max()
    };
    let with = rooms.iter().filter_map(|room| fits(room).map(|length| (length, room)));
    with.max_by_key(|(length, _)| *length).map(|(_, room)| room)
}

fn forbidden(rooms: &[Room], from: &str, to: &str) -> Option<String> {
    let (from, to) = (room_of(rooms, from)?, room_of(rooms, to)?);
    let is_allowed = from.name == to.name || from.may_use.contains(&to.name);
    let (from, to) = (from.name, to.name);
    (!is_allowed).then(|| format!("room {from} may not import {to}: see xtask/src/rooms.rs"))
}

/// The segments of the module that a file is.
fn module(path: &str) -> Vec<String> {
    let path = path.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.split('/').filter(|segment| *segment != "lib").map(str::to_owned).collect()
}

/// What a file imports of the others, without its own submodules; once for each line and file.
fn imports(path: &str, text: &str, known: &BTreeSet<&str>) -> Result<Vec<Import>> {
    let mut paths = Paths::default();
    paths.visit_file(&syn::parse_file(text)?);
    let own = module(path);
    let mut found: Vec<Import> = Vec::new();
    for (line, segments) in paths.found {
        let Some(target) = absolute(&own, &segments) else { continue };
        let Some(file) = file_of(&target, known) else { continue };
        let is_own = file == path || module(file).starts_with(&own);
        let is_known = found.iter().any(|import| import.file == file);
        if !is_own && !is_known {
            found.push(Import { line, file: file.to_owned() });
        }
    }
    Ok(found)
}

/// A path of `crate`, `super` or `self`, from the crate's root.
fn absolute(own: &[String], segments: &[String]) -> Option<Vec<String>> {
    let mut base = own.to_vec();
    let mut rest = segments;
    match segments.first()?.as_str() {
        "crate" => (base, rest) = (Vec::new(), segments.get(1..)?),
        "self" => rest = segments.get(1..)?,
        "super" => {
            while let Some((first, others)) = rest.split_first()
                && first == "super"
            {
                base.pop();
                rest = others;
            }
        }
        _ => return None,
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// The file of the longest part of a path that is a module.
fn file_of<'a>(path: &[String], known: &BTreeSet<&'a str>) -> Option<&'a str> {
    (1..=path.len()).rev().find_map(|len| {
        let module = path.get(..len)?.join("/");
        let names = [format!("{module}.rs"), format!("{module}/mod.rs")];
        names.iter().find_map(|name| known.get(name.as_str()).copied())
    })
}

/// Collects the paths of a file, without those of its tests.
#[derive(Default)]
struct Paths {
    found: Vec<(usize, Vec<String>)>,
}

impl Paths {
    fn add(&mut self, span: Span, segments: Vec<String>) {
        self.found.push((span.start().line, segments));
    }

    fn add_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                let before = [before, &[path.ident.to_string()]].concat();
                self.add_tree(&before, &path.tree);
            }
            syn::UseTree::Name(name) => {
                let name = (name.ident.span(), name.ident.to_string());
                self.add(name.0, [before, &[name.1]].concat());
            }
            syn::UseTree::Rename(name) => {
                let name = (name.ident.span(), name.ident.to_string());
                self.add(name.0, [before, &[name.1]].concat());
            }
            syn::UseTree::Glob(glob) => self.add(glob.star_token.spans[0], before.to_vec()),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.add_tree(before, item));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let is_test = |attribute: &syn::Attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
        };
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, used: &'ast syn::ItemUse) {
        self.add_tree(&[], &used.tree);
    }

    /// `pub(super)` is no import.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first() {
            let names = path.segments.iter().map(|segment| segment.ident.to_string());
            self.add(first.ident.span(), names.collect());
        }
        visit::visit_path(self, path);
    }
}

/// The sets of files that reach each other, of two and more.
fn circles(arrows: &BTreeMap<&str, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|file| (*file, reachable(file, arrows))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
    let mut all: Vec<Vec<String>> = Vec::new();
    for file in arrows.keys() {
        if all.iter().flatten().any(|known| known == file) {
            continue;
        }
        let circle = arrows.keys().filter(|other| reaches(file, other) && reaches(other, file));
        let circle: Vec<String> = circle.map(|other| (*other).to_owned()).collect();
        if circle.len() > 1 {
            all.push(circle);
        }
    }
    all
}

fn reachable<'a>(from: &str, arrows: &'a BTreeMap<&str, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in arrows.get(file).into_iter().flatten() {
            if found.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(house: &House, files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File {
            path: format!("{}{path}", house.folder),
            text: (*text).to_owned(),
        };
        let files: Vec<File> = files.iter().map(file).collect();
        let found = judge(house, &files.iter().collect::<Vec<_>>()).unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    const TWO: House = House {
        folder: "c/src/",
        rooms: &[
            Room { name: "low", files: &["low.rs"], may_use: &[] },
            Room { name: "high", files: &["high"], may_use: &["low"] },
        ],
        circle_files_max: 1,
    };

    #[test]
    fn an_arrow_against_the_table_is_found() {
        let lib = ("lib.rs", "mod low; mod high;");
        let high = ("high/mod.rs", "use crate::low::{A, b::B};");
        assert!(findings(&TWO, &[lib, high, ("low.rs", "pub struct A;")]).is_empty());
        for text in [
            "use crate::high::H;",
            "use crate::{low, high};",
            "fn f() { super::high::g(); }",
            "type T = crate::high::H;",
        ] {
            let found = findings(&TWO, &[lib, ("high.rs", ""), ("low.rs", text)]);
            let expected = "c/src/low.rs:1: room low may not import high: see xtask/src/rooms.rs";
            assert_eq!(found, [expected], "{text}");
        }
        let test = "#[cfg(test)] mod tests { use crate::high::H; }";
        assert!(findings(&TWO, &[lib, ("high.rs", ""), ("low.rs", test)]).is_empty());
        let new = findings(&TWO, &[lib, ("low.rs", ""), ("new.rs", "use crate::low::A;")]);
        assert_eq!(new, ["c/src/new.rs: has no room in xtask/src/rooms.rs: decide its place"]);
    }

    #[test]
    fn the_longer_beginning_gives_the_room() {
        let room = |path| room_of(PAGES, path).map(|room| room.name);
        assert_eq!(room("alloc/mover.rs"), Some("space"));
        assert_eq!(room("alloc/slots.rs"), Some("alloc"));
        assert_eq!(room("new.rs"), None);
    }

    #[test]
    fn files_that_import_each_other_are_found() {
        let any = House { rooms: &[], ..TWO };
        let two = [("a.rs", "use crate::b::B;"), ("b/mod.rs", "use super::a::A;")];
        let found = findings(&any, &two);
        assert_eq!(found, ["c/src/: 2 files import each other, and 1 may: a.rs, b/mod.rs"]);
        let own = [("a.rs", "mod b; use b::B; use self::b::C;"), ("a/b.rs", "use super::A;")];
        assert!(findings(&any, &own).is_empty(), "a file and its submodule");
        let handed_on =
            [("lib.rs", "pub use a::A;"), ("a.rs", "use crate::b;"), ("b.rs", "use crate::A;")];
        assert!(findings(&any, &handed_on).is_empty(), "through lib.rs");
    }
}
