//! The live view on a terminal of its own: it is drawn, and the terminal is given back.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use esker::IndexKind;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use tempfile::TempDir;

use crate::support::{Place, Running, esker};

const SECOND_SCREEN: &str = "\x1b[?1049h";
const FIRST_SCREEN: &str = "\x1b[?1049l";
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal, and the command on it.
struct Terminal {
    keyboard: File,
    /// Kept open, so that its modes can be asked for after the command has ended.
    device: File,
    modes: String,
    shown: Arc<Mutex<Vec<u8>>>,
    child: Running,
    _folder: TempDir,
}

impl Terminal {
    fn run(arguments: &[&str], term: &str, (columns, rows): (u16, u16)) -> Self {
        let host = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&host).unwrap();
        unlockpt(&host).unwrap();
        let name = ptsname(&host, Vec::new()).unwrap();
        let device = File::from(open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&device, size).unwrap();
        let modes = format!("{:?}", tcgetattr(&device).unwrap());
        // In a session of its own, so that the terminal that the tests run on is not asked.
        let mut command = Command::new("setsid");
        command.arg(env!("CARGO_BIN_EXE_esker")).args(arguments).env("TERM", term);
        let folder = tempfile::tempdir().unwrap();
        command.env("TMPDIR", folder.path());
        let end = || Stdio::from(device.try_clone().unwrap());
        let child = Running(command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap());
        let keyboard = File::from(host);
        let shown = Arc::default();
        let (mut screen, seen) = (keyboard.try_clone().unwrap(), Arc::clone(&shown));
        thread::spawn(move || copy(&mut screen, &seen));
        Self { keyboard, device, modes, shown, child, _folder: folder }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    #[track_caller]
    fn wait_for(&self, word: &str) {
        let begun = Instant::now();
        while !self.text().contains(word) {
            assert!(begun.elapsed() < PATIENCE, "{word:?} never came:\n{}", self.text());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.0), signal).unwrap();
    }

    /// Waits for its end, and for `last` to be shown.
    #[track_caller]
    fn end(mut self, last: &str) -> (ExitStatus, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end:\n{}", self.text());
            thread::sleep(Duration::from_millis(10));
        };
        self.wait_for(last);
        assert_eq!(format!("{:?}", tcgetattr(&self.device).unwrap()), self.modes);
        (status, self.text())
    }
}

/// Until nobody holds the terminal any more, which is an error here and not an end.
fn copy(screen: &mut File, seen: &Mutex<Vec<u8>>) {
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = screen.read(&mut part) {
        seen.lock().unwrap().extend_from_slice(&part[..count]);
    }
}

/// The second screen was taken once and given back once, and what is for later came later.
#[track_caller]
fn check_given_back(text: &str, later: &str) {
    let count = |sequence| text.matches(sequence).count();
    assert_eq!((count(SECOND_SCREEN), count(FIRST_SCREEN)), (1, 1), "{text}");
    let (_, taken) = text.split_once(SECOND_SCREEN).unwrap();
    let (_, back) = taken.split_once(FIRST_SCREEN).unwrap();
    assert!(back.contains("\x1b[?25h"), "no cursor:\n{back}");
    assert!(back.contains(later), "{later:?} is not in\n{back}");
}

fn live() -> Terminal {
    live_with("fdtree")
}

fn live_with(index: &str) -> Terminal {
    let arguments = ["bench", "--live", "--entries", "50000", "--memory", "4", "--index", index];
    let terminal = Terminal::run(&arguments, "xterm", (100, 30));
    terminal.wait_for("overwriting");
    terminal
}

#[test]
fn q_ends_the_live_bench_with_its_summary() {
    for kind in IndexKind::ALL {
        let mut terminal = live_with(kind.name());
        terminal.keyboard.write_all(b"xq").unwrap();
        let (status, text) = terminal.end("space over live data");
        assert_eq!(status.code(), Some(0), "{text}");
        check_given_back(&text, "gets, all answers right");
    }
}

#[test]
fn control_c_interrupts_the_live_bench() {
    let mut terminal = live();
    terminal.keyboard.write_all(&[3]).unwrap();
    let (status, text) = terminal.end("interrupted");
    assert_eq!(status.code(), Some(130), "{text}");
    check_given_back(&text, "esker: interrupted");
}

/// The second one would end any other command at once.
#[test]
fn signals_one_after_the_other_leave_no_terminal_behind() {
    let terminal = live();
    for signal in [Signal::INT, Signal::TERM, Signal::INT] {
        terminal.signal(signal);
    }
    // A later one may come when the terminal is back, and end it without a word.
    let (status, text) = terminal.end(FIRST_SCREEN);
    assert_eq!(status.code(), Some(130), "{text}");
    check_given_back(&text, "");
}

#[test]
fn the_live_bench_needs_a_terminal() {
    esker(["bench", "--live"]).fails(2, &["--live", "terminal"]);
    let terminal = Terminal::run(&["bench", "--live"], "dumb", (100, 30));
    let (status, text) = terminal.end("terminal");
    assert_eq!((status.code(), text.contains('\x1b')), (Some(2), false), "{text}");
    esker(["bench", "--entries", "5"]).fails(2, &["--live"]);
    esker(["bench", "--live", "--scale", "small"]).fails(2, &["--scale"]);
}

fn demo(term: &str, size: (u16, u16)) -> String {
    let place = Place::new();
    fs::create_dir(place.path("root")).unwrap();
    for number in 0..300 {
        place.write(&format!("root/{number}"), "");
    }
    let root = place.path("root").into_os_string().into_string().unwrap();
    let terminal = Terminal::run(&["demo", "--root", &root], term, size);
    let (status, text) = terminal.end("answers were right");
    assert_eq!(status.code(), Some(0), "{text}");
    text
}

#[test]
fn the_demo_shows_the_live_view_and_then_its_table() {
    let text = demo("xterm", (100, 30));
    check_given_back(&text, "look up absent");
    check_given_back(&text, "p99.9");
    // Blanks are skipped, not written.
    assert!(["tree,", "growth", "reads"].iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn a_small_or_dumb_terminal_shows_the_demo_as_ever() {
    for (term, size) in [("xterm", (60, 15)), ("dumb", (100, 30))] {
        let text = demo(term, size);
        assert!(!text.contains(SECOND_SCREEN) && text.contains("look up absent"), "{text}");
    }
}
