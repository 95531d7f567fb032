//! The rooms of a crate, and which of its files import each other.
//!
//! A room is a folder of `src/`, or a file that lies directly in it. Rooms may import those that
//! the table names. An import through `lib.rs` counts as none: what a crate hands on there is for
//! everyone. A file and its submodules count as one another's: importing one's own submodule is no
//! import.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Span;
use syn::visit::{self, Visit};

use crate::tree::File;
use crate::{Finding, Result, Tree};

/// A room and those that it may import.
struct Room {
    name: &'static str,
    may_use: &'static [&'static str],
}

/// The rooms of a crate, and the most files that may import each other in a circle.
struct House {
    folder: &'static str,
    /// None: any file may import any other.
    rooms: &'static [Room],
    circle_files_max: usize,
}

/// What all kinds of index stand on.
const SHARED: &[&str] =
    &["build", "check", "job", "kind", "merge", "read", "record", "run", "upkeep"];

const INDEX: &[Room] = &[
    Room { name: "fault", may_use: &[] },
    Room { name: "job", may_use: &[] },
    Room { name: "run", may_use: &[] },
    Room { name: "read", may_use: &["job", "run", "upkeep"] },
    Room { name: "build", may_use: &["read", "run"] },
    Room { name: "check", may_use: &["build", "read", "run"] },
    Room { name: "upkeep", may_use: &["job", "kind", "merge", "read", "run"] },
    Room { name: "record", may_use: &["fault", "kind", "upkeep"] },
    Room {
        name: "merge",
        may_use: &["build", "fault", "job", "kind", "read", "record", "run", "upkeep"],
    },
    Room {
        name: "kind",
        may_use: &["check", "fdtree", "lsm", "merge", "read", "record", "run", "upkeep"],
    },
    Room { name: "fdtree", may_use: SHARED },
    Room { name: "lsm", may_use: SHARED },
    Room { name: "index", may_use: SHARED },
];

const HOUSES: [House; 2] = [
    House { folder: "crates/index/src/", rooms: INDEX, circle_files_max: 1 },
    House { folder: "crates/store/src/", rooms: &[], circle_files_max: 3 },
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

/// The room of a file.
fn room(path: &str) -> &str {
    path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

fn forbidden(rooms: &[Room], from: &str, to: &str) -> Option<String> {
    let (from, to) = (room(from), room(to));
    let known = rooms.iter().find(|room| room.name == from);
    match known {
        _ if rooms.is_empty() || from == to || from == "lib" => None,
        Some(room) if room.may_use.contains(&to) => None,
        Some(_) => Some(format!("the room {from} may not import {to}: see xtask/src/rooms.rs")),
        None => Some(format!("{from} is no room that xtask/src/rooms.rs knows: decide its place")),
    }
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
        rooms: &[Room { name: "low", may_use: &[] }, Room { name: "high", may_use: &["low"] }],
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
            let expected =
                "c/src/low.rs:1: the room low may not import high: see xtask/src/rooms.rs";
            assert_eq!(found, [expected], "{text}");
        }
        let test = "#[cfg(test)] mod tests { use crate::high::H; }";
        assert!(findings(&TWO, &[lib, ("high.rs", ""), ("low.rs", test)]).is_empty());
        let new = findings(&TWO, &[lib, ("low.rs", ""), ("new.rs", "use crate::low::A;")]);
        assert!(new[0].contains("decide its place"), "{new:?}");
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
