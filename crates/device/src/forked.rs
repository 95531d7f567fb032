//! Children by `fork`, for tests: what one answers, and whether it hangs.

#![expect(unsafe_code, reason = "there is no safe way to fork")]

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child of this process. It is killed and waited for when this is dropped.
#[derive(Debug)]
pub struct Child {
    /// `None` once it has been waited for.
    number: Option<i32>,
}

/// The way in which a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this answer.
    Answer(u8),
    /// By this signal: 14 where it took too long.
    Signal(i32),
}

impl Child {
    /// Runs `body` in a child of this process, whose single thread is a copy of this one. A panic
    /// becomes answer 101; after `seconds` the child is killed.
    ///
    /// # Panics
    /// When the system cannot create a process.
    pub fn run(seconds: u32, body: impl FnOnce() -> u8) -> Self {
        // SAFETY: the child has a copy of all memory, and leaves without returning.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: sets a timer of the child.
                unsafe { libc::alarm(seconds) };
                let answer = catch_unwind(AssertUnwindSafe(body)).unwrap_or(101);
                // SAFETY: ends the child, and runs nothing that its parent has registered.
                unsafe { libc::_exit(i32::from(answer)) }
            }
            number => {
                assert!(number > 0, "no process to be had");
                Self { number: Some(number) }
            }
        }
    }

    /// Its number, while it has not been waited for.
    #[must_use]
    pub const fn number(&self) -> Option<i32> {
        self.number
    }

    /// Waits for its end.
    #[must_use]
    pub fn wait(mut self) -> Ended {
        self.waited()
    }

    /// Kills it, as the system does where memory is short, and waits for its end.
    pub fn kill(self) {
        drop(self);
    }

    fn waited(&mut self) -> Ended {
        let Some(number) = self.number.take() else { return Ended::Answer(0) };
        let mut status = 0;
        // SAFETY: the child is ours, and there is room for its status.
        while unsafe { libc::waitpid(number, &raw mut status, 0) } < 0 {}
        if libc::WIFSIGNALED(status) {
            return Ended::Signal(libc::WTERMSIG(status));
        }
        Ended::Answer(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            // SAFETY: the child is ours, and has not been waited for.
            unsafe { libc::kill(number, libc::SIGKILL) };
            self.waited();
        }
    }
}
