//! C programs over the library, and the header that they see.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of this package.
const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Where the library is that was built with this test.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Compiles `source` with `compiler`; every warning is an error.
fn compile(compiler: &[&str], source: &str, folder: &Path) -> PathBuf {
    let program = folder.join("program");
    let done = Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"])
        .arg(Path::new(HERE).join(source))
        .arg("-I")
        .arg(Path::new(HERE).join("include"))
        .arg("-L")
        .arg(built())
        .args(["-l", "esker_c", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", said(&done));
    program
}

/// Runs `program` with a folder of its own, in which the library has the name that programs look
/// for: its SONAME, as `make install` gives it.
fn run(program: &Path, folder: &Path) -> Output {
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let abi = if major == "0" { format!("0.{minor}") } else { major.to_owned() };
    let named = folder.join(format!("libesker_c.so.{abi}"));
    if !named.exists() {
        std::os::unix::fs::symlink(built().join("libesker_c.so"), named).unwrap();
    }
    Command::new(program).arg(folder.join("store")).env("LD_LIBRARY_PATH", folder).output().unwrap()
}

#[test]
fn the_example_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(&["cc", "-std=c11"], "examples/quickstart.c", folder.path());
    let output = run(&program, folder.path());
    let expected = "ada: 1815\nnow: ada\nnow: grace\nbefore: alan\nbefore: ada\ncounted: yes\n\
                    code 1: value is no run of 300000 bytes\n";
    assert_eq!(said(&output), expected);
    assert!(output.status.success());
    // What was written is there when the store is opened again.
    assert!(run(&program, folder.path()).status.success());
}

#[test]
fn values_are_streamed() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(&["cc", "-std=c11"], "tests/streams.c", folder.path());
    let output = run(&program, folder.path());
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn history_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(&["cc", "-std=c11"], "tests/history.c", folder.path());
    let output = run(&program, folder.path());
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn versions_are_compared_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(&["cc", "-std=c11"], "tests/time_travel.c", folder.path());
    let output = run(&program, folder.path());
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_store_is_followed_while_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(&["cc", "-std=c11"], "tests/follow.c", folder.path());
    let output = run(&program, folder.path());
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn misuse_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(&["cc", "-std=c11"], "tests/misuse.c", folder.path());
    let output = run(&program, folder.path());
    assert_eq!(said(&output), "all refused\n");
    assert!(output.status.success());
}

#[test]
fn a_forked_child_is_refused_everything() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(&["cc", "-std=c11"], "tests/fork.c", folder.path());
    let output = run(&program, folder.path());
    assert_eq!(said(&output), "done\n");
    assert!(output.status.success());
    assert!(!folder.path().join("store-backup").exists());
    // All that the header has is called there.
    let read = |name| std::fs::read_to_string(Path::new(HERE).join(name)).unwrap();
    let (header, source) = (read("include/esker.h"), read("tests/fork.c"));
    for line in header.lines().filter(|line| !line.starts_with("//")) {
        let Some(end) = line.find('(') else { continue };
        let name = line[..end].rsplit([' ', '*']).next().unwrap();
        assert!(source.contains(&format!("{name}(")), "{name} is not called in a child");
    }
}

#[test]
fn the_header_is_cpp_too() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("header.cc");
    std::fs::write(&source, "#include \"esker.h\"\nint main() { return ESKER_OK; }\n").unwrap();
    let checked = Command::new("cc")
        .args(["-x", "c++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"])
        .arg(&source)
        .arg("-I")
        .arg(Path::new(HERE).join("include"))
        .output()
        .unwrap();
    let text = said(&checked);
    // A machine with a C compiler alone has no cc1plus.
    assert!(checked.status.success() || text.contains("cc1plus"), "{text}");
}

/// The header is what cbindgen writes of the sources. `ESKER_WRITE_HEADER=1` writes it.
#[test]
fn the_header_is_in_step_with_the_sources() {
    let config = cbindgen::Config::from_file(Path::new(HERE).join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::generate_with_config(HERE, config).unwrap();
    let mut written = Vec::new();
    bindings.write(&mut written);
    let path = Path::new(HERE).join("include/esker.h");
    if std::env::var_os("ESKER_WRITE_HEADER").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let kept = std::fs::read(&path).unwrap();
    assert!(kept == written, "include/esker.h is old: ESKER_WRITE_HEADER=1 cargo test -p esker-c");
}
