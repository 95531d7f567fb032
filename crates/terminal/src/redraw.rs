//! Frames of text on a terminal, each in the place of the one before.
//!
//! Invariant: the terminal needs no restoring at any moment: no mode of it is changed, and the
//! cursor is at the beginning of the line below the last frame.
//! Invariant: a frame has less lines than the terminal and none is longer than a line of it, so
//! that nothing scrolls. What is beyond is left out.

use std::env;
use std::io::{IsTerminal, stdout};

use rustix::termios::tcgetwinsize;

const CLEAR_SCREEN: &str = "\x1b[2J";
const TO_THE_TOP: &str = "\x1b[H";
const CLEAR_REST_OF_LINE: &str = "\x1b[K";
const CLEAR_REST_OF_SCREEN: &str = "\x1b[J";
/// The size of a terminal that does not say its size.
const SIZE_DEFAULT: Size = Size { columns: 80, rows: 24 };

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    columns: usize,
    rows: usize,
}

/// Draws frames on standard output.
#[derive(Debug, Default)]
pub struct Redraw {
    is_begun: bool,
}

/// Whether standard output is a terminal that can move its cursor.
#[must_use]
pub fn is_possible() -> bool {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
    stdout().is_terminal() && !is_dumb
}

impl Redraw {
    /// What has to be written so that the terminal shows `text` and nothing else. The text has no
    /// control characters but line feeds.
    pub fn frame(&mut self, text: &str) -> String {
        self.frame_of(text, size())
    }

    fn frame_of(&mut self, text: &str, size: Size) -> String {
        let mut frame = String::new();
        if !self.is_begun {
            frame.push_str(CLEAR_SCREEN);
        }
        self.is_begun = true;
        frame.push_str(TO_THE_TOP);
        for line in text.lines().take(size.rows.saturating_sub(1)) {
            frame.extend(line.chars().take(size.columns));
            // In the last column, it would clear the last character.
            if line.chars().count() < size.columns {
                frame.push_str(CLEAR_REST_OF_LINE);
            }
            frame.push_str("\r\n");
        }
        frame.push_str(CLEAR_REST_OF_SCREEN);
        frame
    }
}

fn size() -> Size {
    let Ok(size) = tcgetwinsize(stdout()) else { return SIZE_DEFAULT };
    let or = |given: u16, default| if given == 0 { default } else { usize::from(given) };
    Size {
        columns: or(size.ws_col, SIZE_DEFAULT.columns),
        rows: or(size.ws_row, SIZE_DEFAULT.rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_takes_the_place_of_the_one_before() {
        let (mut redraw, size) = (Redraw::default(), Size { columns: 5, rows: 4 });
        let first = redraw.frame_of("one\ntwo", size);
        assert_eq!(first, "\x1b[2J\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\n\x1b[J");
        let second = redraw.frame_of("1", size);
        assert_eq!(second, "\x1b[H1\x1b[K\r\n\x1b[J");
    }

    #[test]
    fn a_frame_fits_into_any_terminal() {
        let frame = |size| Redraw { is_begun: true }.frame_of("ééééé\nb\nc", size);
        let (narrow, low) = (Size { columns: 3, rows: 9 }, Size { columns: 9, rows: 2 });
        assert_eq!(frame(narrow), "\x1b[Hééé\r\nb\x1b[K\r\nc\x1b[K\r\n\x1b[J");
        assert_eq!(frame(low), "\x1b[Hééééé\x1b[K\r\n\x1b[J");
        assert_eq!(frame(Size { columns: 0, rows: 0 }), "\x1b[H\x1b[J");
    }
}
