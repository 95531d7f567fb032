//! Which files the repository holds.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// Folders that are never looked into: build output, history, and inputs that fuzzers found.
const SKIPPED: [&str; 4] = ["target", ".git", "corpus", "artifacts"];

/// A file's place and text.
#[derive(Clone, Debug)]
pub struct File {
    /// Path from the root, with forward slashes.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// The repository's text files, sorted by path.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
    files: Vec<File>,
}

impl Tree {
    /// Reads the repository that this crate was built from.
    pub fn of_this_repository() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent")?;
        Self::read(root)
    }

    /// Reads every text file below `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let path = entry.path();
                let skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
                if entry.file_type()?.is_dir() && !skipped {
                    folders.push(path);
                } else if entry.file_type()?.is_file()
                    && let Ok(text) = String::from_utf8(fs::read(&path)?)
                {
                    let path = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
                    files.push(File { path, text });
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { root: root.to_path_buf(), files })
    }

    /// The repository's root folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Every text file.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    /// The files whose names end in one of `endings`.
    pub fn ending_in(&self, endings: &[&str]) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| endings.iter().any(|end| file.path.ends_with(end)))
    }

    /// The text of one file.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }
}
