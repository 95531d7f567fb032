//! Checks of the house itself, run as ordinary tests and by `cargo xtask check`.
//!
//! Reading order: [`tree`] (which files there are), [`source`] (a parsed Rust file),
//! [`edges`] (which crate may use which), [`rooms`] (which room of a crate may import which),
//! [`suites`] (which file enumerates crashes and faults), [`packages`] (what a published package
//! has), [`tidy`] (sizes, attributes), [`words`] (one language), [`docs`] (links, the README's
//! example, a reason for every dependency), [`papers`] (what of the papers is here),
//! [`fingerprint`] (the format page keeps up with the encoders), [`test_counts`] (what the last
//! test run counted), [`slowest`] (where its time went).
//!
//! A check is a function from the repository to a list of [`Finding`]s; none of them changes
//! anything.

pub mod docs;
pub mod edges;
pub mod fingerprint;
pub mod packages;
pub mod papers;
pub mod rooms;
pub mod slowest;
pub mod source;
pub mod suites;
pub mod test_counts;
pub mod tidy;
pub mod tree;
pub mod words;

use std::fmt;

pub use tree::Tree;

/// The result of anything that reads the repository.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the repository's root, with forward slashes.
    pub file: String,
    /// Line, from 1; 0 stands for the whole file.
    pub line: usize,
    /// The fault, and the way to correct it.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what),
            line => write!(f, "{}:{line}: {}", self.file, self.what),
        }
    }
}

/// A named check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The statement that holds when the check finds nothing.
    pub name: &'static str,
    /// Finds what breaks it.
    pub run: fn(&Tree) -> Result<Vec<Finding>>,
}

/// Every check, in the order in which `cargo xtask check` runs them.
pub const CHECKS: [Check; 12] = [
    Check { name: "manifests keep to the arrows", run: edges::check_manifests },
    Check { name: "sources keep to the arrows", run: edges::check_sources },
    Check { name: "rooms keep to the arrows, files to few circles", run: rooms::check },
    Check { name: "crashes and faults are enumerated by the harness", run: suites::check },
    Check { name: "packages are fit to be published", run: packages::check },
    Check { name: "sizes, words and attributes are tidy", run: tidy::check },
    Check { name: "old words have gone", run: words::check },
    Check { name: "links lead somewhere", run: docs::check_links },
    Check { name: "every dependency has its reason", run: docs::check_dependency_reasons },
    Check { name: "the README's example is the tested one", run: docs::check_readme_example },
    Check { name: "the page of the papers names what is there", run: papers::check },
    Check { name: "the format page is in step with the encoders", run: fingerprint::check },
];
