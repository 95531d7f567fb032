//! The terminal, taken and given back.
//!
//! Invariant: after [`Screen::open`] the terminal is given back exactly once: when the screen is
//! dropped, or by the panic hook before the message, whichever thread panics. No signal that asks
//! for an end comes between.
//! Invariant: nothing is drawn after it was given back.

use std::io::{self, IsTerminal, stdin, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_terminal::redraw;
use esker_terminal::signals::{Interrupt, Patience};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    self, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};

/// Less than this shows too little to be worth hiding the usual output for.
const COLUMNS_MIN: u16 = 72;
const ROWS_MIN: u16 = 18;

/// Whether the terminal is ours. A process has one terminal, and a panic hook has no context.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal in raw mode, on its second screen.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<io::Stdout>>,
    _patience: Patience,
}

/// The command of a key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Quit,
    /// Control and C, which is no signal in raw mode.
    Interrupt,
}

/// Whether standard input and output are a terminal that can show a screen.
pub(crate) fn is_possible() -> bool {
    stdin().is_terminal() && redraw::is_possible()
}

/// Whether the terminal is large enough for everything.
pub(crate) fn is_roomy() -> bool {
    terminal::size().is_ok_and(|(columns, rows)| columns >= COLUMNS_MIN && rows >= ROWS_MIN)
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn open(interrupt: &Interrupt) -> io::Result<Self> {
        let patience = interrupt.be_patient();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        TAKEN.store(true, Ordering::SeqCst);
        let taken = enable_raw_mode()
            .and_then(|()| execute!(stdout(), EnterAlternateScreen))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match taken {
            Ok(terminal) => Ok(Self { terminal, _patience: patience }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if TAKEN.load(Ordering::SeqCst) {
            self.terminal.draw(render)?;
        }
        Ok(())
    }

    /// Waits so long at most for something that means anything.
    pub(super) fn typed(&self, wait: Duration) -> io::Result<Option<Typed>> {
        if !event::poll(wait)? {
            return Ok(None);
        }
        Ok(match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => meaning(key),
            _ => None,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn meaning(key: KeyEvent) -> Option<Typed> {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(Typed::Interrupt)
        }
        KeyCode::Char('q' | 'Q') => Some(Typed::Quit),
        _ => None,
    }
}

fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // A closed terminal needs no restoring.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_q_and_control_c_mean_something() {
        let key = |code, modifiers| meaning(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Typed::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Typed::Interrupt));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Esc, KeyModifiers::NONE), None);
    }
}
