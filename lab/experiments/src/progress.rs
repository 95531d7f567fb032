//! How far a comparison is, for those who wait for it.

use std::fmt;

use crate::{Error, Result};

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The work that is under way, and the part of it that is done, from 0 to 1.
    Progress(&'a str, f64),
    /// One line about what is done.
    Done(&'a str),
}

/// The receiver of events, which decides whether to go on.
pub struct Watch<'a> {
    pub(crate) what: String,
    tell: &'a mut dyn FnMut(Event<'_>) -> bool,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("what", &self.what).finish_non_exhaustive()
    }
}

impl<'a> Watch<'a> {
    /// A receiver that has heard nothing.
    pub(crate) fn new(what: &str, tell: &'a mut dyn FnMut(Event<'_>) -> bool) -> Self {
        Self { what: what.to_owned(), tell }
    }

    /// Says how far it is.
    ///
    /// # Errors
    /// [`Error::Interrupted`] where it is not to go on.
    pub fn progress(&mut self, part: f64) -> Result<()> {
        self.say(|what| Event::Progress(what, part.clamp(0.0, 1.0)))
    }

    /// Says what is done, in a line.
    ///
    /// # Errors
    /// [`Error::Interrupted`] where it is not to go on.
    pub fn done(&mut self, line: &str) -> Result<()> {
        self.say(|_| Event::Done(line))
    }

    fn say<'b>(&'b mut self, event: impl FnOnce(&'b str) -> Event<'b>) -> Result<()> {
        if (self.tell)(event(&self.what)) { Ok(()) } else { Err(Error::Interrupted) }
    }
}
