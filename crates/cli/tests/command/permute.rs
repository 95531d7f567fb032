//! `permute`, from outside.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{command, esker};

fn npy(descr: &str, fortran: &str, shape: &str, items: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    let length = (text.len() + 11).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(length).unwrap().to_le_bytes());
    bytes.extend(format!("{text:<0$}\n", length - 1).as_bytes());
    bytes.extend(items);
    bytes
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_matrix_is_transposed() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("a.npy"), folder.path().join("b.npy"));
    // As `numpy.arange(6, dtype='>i2').reshape(2, 3)`.
    let items: Vec<u8> = (0_u16..6).flat_map(u16::to_be_bytes).collect();
    fs::write(&from, npy(">i2", "False", "(2, 3)", &items)).unwrap();
    let answer = esker(["permute", &text(&from), "h w -> w h", &text(&to), "--json"]);
    let report = answer.json();
    assert_eq!(report["shape"], serde_json::json!([3, 2]));
    assert!(report["peak_buffer_bytes"].as_u64().unwrap() <= 256 << 20);
    let turned: Vec<u8> = [0_u16, 3, 1, 4, 2, 5].into_iter().flat_map(u16::to_be_bytes).collect();
    assert_eq!(fs::read(&to).unwrap(), npy(">i2", "False", "(3, 2)", &turned));
    // Fortran order is the same items in another order.
    fs::write(&from, npy(">i2", "True", "(3, 2)", &items)).unwrap();
    let answer = esker(["permute", &text(&from), "a b -> a b", &text(&to), "--force"]);
    assert!(answer.text().contains("1 pass"), "{}", answer.text());
    assert_eq!(fs::read(&to).unwrap(), npy(">i2", "False", "(3, 2)", &turned));
}

#[test]
fn short_tiles_go_to_raw_files() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("a.raw"), folder.path().join("b.raw"));
    fs::write(&from, b"abcdefghijklmno").unwrap();
    let pattern = "(h h2) (w w2) -> h w h2 w2";
    let shape = ["--shape", "3,5", "--dtype", "|u1"];
    let tiles = |to: &Path, extra: &[&str]| {
        let (from, to) = (text(&from), text(to));
        let fixed = ["permute", &from, pattern, &to, "h2=2", "w2=3"];
        esker([&fixed, extra].concat())
    };
    tiles(&to, &shape).stdout();
    // a b c | d e
    // f g h | i j
    // ----------
    // k l m | n o
    assert_eq!(fs::read(&to).unwrap(), b"abcfghdeijklmno");
    tiles(&folder.path().join("c.npy"), &shape).fails(2, &[".raw", "short"]);
    let plan = tiles(&folder.path().join("c.raw"), &[&shape[..], &["--plan"]].concat());
    assert!(plan.text().contains("pass 1: reads"), "{}", plan.text());
    assert!(!folder.path().join("c.raw").exists());
}

#[test]
fn mistakes_are_one_line_that_names_the_way_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| text(&folder.path().join(name));
    fs::write(path("a.npy"), npy("<f8", "False", "(2, 3)", &[7; 48])).unwrap();
    fs::write(path("cut.npy"), npy("<f8", "False", "(2, 3)", &[7; 47])).unwrap();
    fs::write(path("huge.npy"), npy("<f8", "False", "(4294967296, 4294967296)", &[])).unwrap();
    fs::write(path("objects.npy"), npy("|O", "False", "(2, 3)", &[7; 48])).unwrap();
    fs::write(path("text.npy"), "not an array, but long enough to be one at first sight").unwrap();
    fs::write(path("there.npy"), "precious").unwrap();
    fs::write(path("empty.npy"), npy("<f8", "False", "(37, 0)", &[])).unwrap();
    fs::write(path("b.raw"), [0; 48]).unwrap();
    std::os::unix::fs::symlink(path("a.npy"), path("link.npy")).unwrap();
    fs::hard_link(path("a.npy"), path("hard.npy")).unwrap();
    let before = fs::read_dir(folder.path()).unwrap().count();
    for (arguments, words) in [
        (&["a.npy", "h w -> w", "o.npy"][..], &["'h'", "right"][..]),
        (&["a.npy", "h -> h", "o.npy"], &["1 dimensions", "[2, 3]"]),
        (&["a.npy", "h w d -> w h d", "o.npy"], &["3 dimensions"]),
        (&["a.npy", "(h k) w -> w h k", "o.npy"], &["name=size"]),
        (&["a.npy", "h w -> w h", "o.npy", "k=3"], &["'k'"]),
        (&["a.npy", "h w -> w h", "o.npy", "h"], &["NAME=SIZE"]),
        (&["a.npy", "h w -> w h", "o.npy", "h=2", "h=2"], &["two sizes"]),
        (&["a.npy", "h w -> w h", "o.npy", "h=3"], &["dimension of 2"]),
        (&["a.npy", "(h k) w -> k w h", "o.raw", "k=0"], &["0"]),
        (&["a.npy", "h (w v) -> v h w", "o.raw", "v=2"], &["keep their order"]),
        (&["a.npy", "h (w v) -> h w -v", "o.raw", "v=2"], &["'-v'", "flip"]),
        (&["a.npy", "h w -> w h", "o.npy", "--memory", "1000"], &["too few", "64KiB"]),
        (&["a.npy", "h w -> w h", "o.npy", "--memory", "much"], &["64MiB"]),
        (&["a.npy", "h w -> w h", "o.txt"], &[".npy", ".raw"]),
        (&["a.npy", "h w -> w h", "none/o.npy"], &["none"]),
        (&["a.npy", "h w -> w h", "there.npy"], &["--force"]),
        (&["a.npy", "h w -> w h", "a.npy", "--force"], &["input itself"]),
        (&["a.npy", "h w -> w h", "link.npy", "--force"], &["input itself"]),
        (&["a.npy", "h w -> w h", "hard.npy", "--force"], &["input itself"]),
        (&["a.npy", "h w -> w h", ".", "--force"], &["regular file"]),
        (&["cut.npy", "h w -> w h", "o.npy"], &["too short", "176", "175"]),
        (&["huge.npy", "h w -> w h", "o.npy"], &["larger than any file"]),
        (&["objects.npy", "h w -> w h", "o.npy"], &["objects"]),
        (&["text.npy", "h w -> w h", "o.npy"], &["--shape"]),
        (&["missing.npy", "h w -> w h", "o.npy"], &["missing.npy"]),
        (&[".", "h w -> w h", "o.npy"], &["no Zarr array", "zarr.json"]),
        (&["a.npy", "h w -> w h", "o.npy", "--chunks", "2,2"], &[".zarr"]),
        (&["a.npy", "h w -> w h", "o.zarr"], &["--chunks 3,2"]),
        (&["empty.npy", "h w -> w h", "o.zarr"], &["--chunks 1,37"]),
        (&["a.npy", "h (w k) -> h w k", "o.npy", "k=64"], &["[1, 64]", "dimension of 3", ".raw"]),
        (&["a.npy", "h (w k) -> h (w k)", "o.npy", "k=2"], &["[2, 2]", "dimension of 3", ".raw"]),
        (&["a.npy", "h w -> w h", "o.zarr", "--chunks", "2"], &["--chunks", "dimensions"]),
        (&["a.npy", "h w -> w h", "o.zarr", "--chunks", "2,x"], &["'x'"]),
        (&["a.npy", "h w -> w h", "o.zarr", "--chunks", "2,0"], &["size of 0"]),
        (&["a.npy", "h w -> w h", "o", "--chunks", "2,2", "--zarr-format", "4"], &["2 and 3"]),
        (&["a.npy", "h w -> w h", "o", "--chunks", "2,2", "--compressor", "xz"], &["zstd"]),
        (&["a.npy", "h (w k) -> w h k", "o.zarr", "k=2", "--chunks", "1,1,2"], &["--chunks"]),
        (&["/dev/null", "h w -> w h", "o.npy"], &["regular file"]),
        (&["b.raw", "h w -> w h", "o.npy", "--shape", "2,3"], &["--dtype"]),
        (&["b.raw", "h w -> w h", "o.npy", "--dtype", "<f8"], &["--shape"]),
        (&["b.raw", "h w -> w h", "o.npy", "--shape", "2,3", "--dtype", "f7"], &["float64"]),
        (&["b.raw", "h w -> w h", "o.npy", "--shape", "2,x", "--dtype", "<f8"], &["'x'"]),
        (&["b.raw", "h w -> w h", "o.npy", "--shape", "2,2", "--dtype", "<f8"], &["check"]),
        (&["b.raw", "h w -> w h", "o.npy", "--shape", "2,3", "--dtype", "V0"], &["no bytes"]),
    ] {
        let answer = command([&["permute"], arguments].concat())
            .current_dir(folder.path())
            .output()
            .unwrap();
        crate::support::Answer(answer).fails(2, words);
    }
    esker(["permute", "-", "h w -> w h", &path("o.npy")]).fails(2, &["standard input"]);
    assert_eq!(fs::read(path("there.npy")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before, "something was written");
}

#[test]
fn names_of_files_are_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join(std::ffi::OsStr::from_bytes(b"a\xff.npy"));
    let to = folder.path().join(format!("{}.npy", "b".repeat(251)));
    fs::write(&from, npy("|u1", "False", "(2,)", b"ab")).unwrap();
    let arguments = ["permute".as_ref(), from.as_os_str(), "a -> -a".as_ref(), to.as_os_str()];
    esker(arguments).stdout();
    assert_eq!(fs::read(&to).unwrap(), npy("|u1", "False", "(2,)", b"ba"));
}

#[test]
fn empty_arrays_and_single_items_are_arrays() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("a.npy"), folder.path().join("b.npy"));
    for (shape, pattern, turned, items) in [
        ("(0, 3)", "h w -> w h", "(3, 0)", &b""[..]),
        ("(1, 1)", "h w -> w h", "(1, 1)", b"x"),
        ("()", "->", "()", b"x"),
        ("()", "-> 1", "(1,)", b"x"),
        ("(1, 2)", "1 w -> w 1", "(2, 1)", b"xy"),
    ] {
        fs::write(&from, npy("|u1", "False", shape, items)).unwrap();
        esker(["permute", &text(&from), pattern, &text(&to), "--force"]).stdout();
        assert_eq!(fs::read(&to).unwrap(), npy("|u1", "False", turned, items), "{shape}");
    }
}

#[test]
fn a_full_device_is_found_before_the_first_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("a.raw"), folder.path().join("b.raw"));
    // A hole takes no space.
    fs::File::create(&from).unwrap().set_len(1 << 43).unwrap();
    let shape = ["--shape", "2097152,4194304", "--dtype", "|u1"];
    let fixed = ["permute", &text(&from), "h w -> w h", &text(&to)];
    esker([&fixed[..], &shape].concat()).fails(2, &["free", "needed"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn the_device_is_measured_once() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("settings");
    let run = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("XDG_CONFIG_HOME", &settings);
        crate::support::Answer(command.output().unwrap())
    };
    let answer = run(&["permute", "--probe", &text(folder.path())]);
    assert!(answer.text().contains("MB/s"), "{}", answer.text());
    let kept = settings.join("esker/permute-profile.json");
    let profile: serde_json::Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    assert!(profile["read_byte"].as_f64().unwrap() > 0.0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the scratch file is gone");
    // A damaged one does no harm.
    fs::write(&kept, "{").unwrap();
    let from = folder.path().join("a.npy");
    fs::write(&from, npy("|u1", "False", "(2,)", b"ab")).unwrap();
    let to = text(&folder.path().join("b.npy"));
    run(&["permute", &text(&from), "a -> -a", &to]).stdout();
    run(&["permute", "--probe", "/dev/null"]).fails(2, &["/dev/null"]);
}

/// Whether the file system of a folder has files without names, which go with the process.
fn has_unnamed(folder: &Path) -> bool {
    use rustix::fs::{Mode, OFlags, open};
    open(folder, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR).is_ok()
}

#[test]
fn a_terminal_that_is_closed_ends_it_cleanly_unless_that_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("a.raw"), folder.path().join("b.zarr"));
    let side = 2048_usize;
    fs::write(&from, vec![7; side * side * 8]).unwrap();
    let (from, shape) = (text(&from), format!("{side},{side}"));
    let to_text = text(&to);
    let arguments = ["permute", &from, "h w -> w h", &to_text, "--memory", "1MiB"];
    let more = ["--shape", &shape, "--dtype", "<u8", "--chunks", "64,64"];
    for is_ignored in [false, true] {
        let mut tried = 0;
        loop {
            tried += 1;
            let trap = if is_ignored { "trap '' HUP; exec \"$@\"" } else { "exec \"$@\"" };
            let mut child = Command::new("sh")
                .args(["-c", trap, "sh", env!("CARGO_BIN_EXE_esker")])
                .args(arguments)
                .args(more)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            // It is at work when there is a file other than the input.
            while fs::read_dir(folder.path()).unwrap().count() < 2 {
                thread::sleep(Duration::from_millis(1));
            }
            kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
            let status = child.wait().unwrap();
            if is_ignored {
                assert!(status.success() && to.exists());
                break;
            }
            let left = fs::read_dir(folder.path()).unwrap().count();
            // It may have been done already.
            if status.code() == Some(130) {
                assert_eq!(left, 1, "something is left");
                break;
            }
            assert!(status.success() && tried < 20, "{status:?}");
            fs::remove_dir_all(&to).unwrap();
        }
    }
}

#[test]
fn a_killed_run_leaves_nothing_under_the_final_name() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("a.raw"), folder.path().join("b.raw"));
    let side = 2048_usize;
    let items: Vec<u8> =
        (0..side * side).flat_map(|index| (index as u64 * 0x9e37_79b9).to_le_bytes()).collect();
    fs::write(&from, &items).unwrap();
    let (from_text, to_text) = (text(&from), text(&to));
    let shape = format!("{side},{side}");
    let fixed = ["permute", &from_text, "h w -> w h", &to_text, "--memory", "1MiB"];
    let arguments = [&fixed[..], &["--shape", &shape, "--dtype", "<u8"]].concat();
    let mut killed = 0;
    for delay_ms in [1, 5, 10, 20, 40, 80, 160] {
        let mut child = command(&arguments).spawn().unwrap();
        thread::sleep(Duration::from_millis(delay_ms));
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            fs::remove_file(&to).unwrap();
            continue;
        }
        killed += 1;
        assert!(!to.exists(), "after {delay_ms} ms");
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert!(left == 1 || !has_unnamed(folder.path()), "{left} files after {delay_ms} ms");
    }
    assert!(killed > 0);
    // Where a killed run leaves something, the next one removes it.
    esker(&arguments).text();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    let turned = fs::read(&to).unwrap();
    let item = |bytes: &[u8], index: usize| bytes[8 * index..8 * index + 8].to_vec();
    for (row, column) in
        (0..side).step_by(37).flat_map(|r| (0..side).step_by(41).map(move |c| (r, c)))
    {
        assert_eq!(item(&turned, column * side + row), item(&items, row * side + column));
    }
}

#[test]
fn resident_memory_is_what_was_allowed_and_a_little() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("large.npy"), folder.path().join("to.npy"));
    let items: Vec<u8> = (0..2000 * 1573_u64).flat_map(u64::to_le_bytes).collect();
    fs::write(&from, npy("<u8", "False", "(2000, 1573)", &items)).unwrap();
    // One load; one pass of many; two passes; several.
    for (memory, kib) in
        [("64MiB", 64 << 10), ("8MiB", 8 << 10), ("1MiB", 1 << 10), ("256KiB", 256)]
    {
        let arguments = ["permute", &text(&from), "h w -> w h", &text(&to), "--memory", memory];
        let mut child = command(arguments).arg("--force").spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0;
        while child.try_wait().unwrap().is_none() {
            let found = fs::read_to_string(&status).unwrap_or_default();
            let line = found.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let resident = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
            peak = peak.max(resident.unwrap_or(0));
            thread::sleep(Duration::from_millis(1));
        }
        assert!(child.wait().unwrap().success());
        assert!(peak > 0 && peak <= kib + (32 << 10), "{peak} KiB resident with {memory}");
    }
}
