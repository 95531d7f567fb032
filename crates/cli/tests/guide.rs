//! The guide's pages on the store do what they say: the first one is followed to the letter, in a
//! new project next to the sources, and the Rust of each other page is a program of that project.
//! The shell's lines of the page on time travel go on with the store that its program has left;
//! those of the page on flash need none.
//!
//! Python's blocks are run by the tests of the package.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGES: [&str; 8] =
    ["model", "store", "time-travel", "durability", "tuning", "operating", "backup", "recovery"];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The language and text of each block of code.
fn blocks(page: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(sources().join("docs/guide").join(format!("{page}.md"))).unwrap();
    let mut blocks = Vec::new();
    let mut rest = text.as_str();
    while let Some((_, opened)) = rest.split_once("\n```") {
        let (language, body) = opened.split_once('\n').unwrap();
        let (body, after) = body.split_once("```\n").unwrap();
        blocks.push((language.to_owned(), body.to_owned()));
        rest = after;
    }
    assert!(!blocks.is_empty());
    blocks
}

/// Somebody at a shell.
struct Shell {
    folder: PathBuf,
    path: String,
}

impl Shell {
    fn new(folder: &Path) -> Self {
        let command = Path::new(env!("CARGO_BIN_EXE_esker")).parent().unwrap();
        let path = format!("{}:{}", command.display(), std::env::var("PATH").unwrap());
        Self { folder: folder.to_owned(), path }
    }

    /// Runs lines, and stays in the folder to which they lead; what they print.
    fn run(&mut self, lines: &str) -> String {
        let output = Command::new("bash")
            .args(["-euc", &format!("{lines}\npwd >&2")])
            .current_dir(&self.folder)
            .env("PATH", &self.path)
            // What the workspace has downloaded is all that is needed.
            .env("CARGO_NET_OFFLINE", "true")
            // Nobody debugs these.
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("guide"))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{lines}{errors}");
        self.folder = PathBuf::from(errors.lines().last().unwrap());
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Follows the first page; answers with the project in which it ends.
fn follow_the_first_page(folder: &Path) -> Shell {
    let mut shell = Shell::new(folder);
    let mut printed = String::new();
    for (language, text) in blocks("start") {
        match language.as_str() {
            "sh" => printed.push_str(&shell.run(&text)),
            "text" => assert_eq!(std::mem::take(&mut printed), text),
            "rust" => {
                // The versions that are here.
                fs::copy(sources().join("Cargo.lock"), shell.folder.join("Cargo.lock")).unwrap();
                fs::write(shell.folder.join("src/main.rs"), text).unwrap();
            }
            other => assert_eq!(other, "python", "who runs it?"),
        }
    }
    assert_eq!(printed, "");
    shell
}

/// Runs the shell's lines of a page, which print what it says.
fn follow_the_lines(shell: &mut Shell, page: &str) {
    let of = |name: &str| {
        let found = blocks(page).into_iter().filter(|(language, _)| language == name);
        found.map(|(_, text)| text).collect::<String>()
    };
    assert_eq!(shell.run(&of("sh")), of("text"));
}

#[test]
fn the_pages_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(sources(), folder.path().join("esker")).unwrap();
    let mut shell = follow_the_first_page(folder.path());
    let programs = shell.folder.join("src/bin");
    fs::create_dir(&programs).unwrap();
    for page in PAGES {
        let rust = blocks(page).into_iter().filter(|(language, _)| language == "rust");
        let body: Vec<_> = rust.map(|(_, text)| text).collect();
        let head = "#![deny(warnings)]\nfn main() -> Result<(), Box<dyn std::error::Error>> {\n";
        let program = [head, &body.join("\n"), "Ok(())\n}\n"].concat();
        fs::write(programs.join(page).with_extension("rs"), program).unwrap();
    }
    for page in PAGES {
        let _ = shell.run(&format!("cargo run --quiet --bin {page}"));
    }
    follow_the_lines(&mut shell, "time-travel");
}

#[test]
fn the_page_on_flash_prints_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(sources(), folder.path().join("esker")).unwrap();
    follow_the_lines(&mut Shell::new(folder.path()), "flash");
}

#[test]
fn the_page_for_firmware_prints_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    follow_the_lines(&mut Shell::new(folder.path()), "firmware");
}
