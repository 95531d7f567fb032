//! The live view on a terminal of its own: it is drawn, and the terminal is given back.

use std::fs;
use std::io::Write;

use esker::IndexKind;
use rustix::process::Signal;

use crate::support::{Place, esker};
use crate::terminal::Terminal;

const SECOND_SCREEN: &str = "\x1b[?1049h";
const FIRST_SCREEN: &str = "\x1b[?1049l";

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
