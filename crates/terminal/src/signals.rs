//! SIGINT, SIGTERM and SIGHUP as a question that long work asks itself.
//!
//! Only commands that have something to finish install this; the others end at once, as any command
//! does, and the store is not harmed by it. A process that was started with SIGHUP ignored
//! (`nohup`) goes on ignoring it.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};

use crate::exit::Failure;

const EXIT_CODE: i32 = 130;
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Whether the user asked for an end.
#[derive(Clone, Debug)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
    /// Whether the next signal ends the process at once.
    impatient: Arc<AtomicBool>,
    /// The handlers by which a signal sets `impatient`; empty while a [`Patience`] lives.
    arming: Arc<Mutex<Vec<SigId>>>,
    /// The signals that are noted.
    signals: Arc<Vec<i32>>,
}

/// While it lives, a second signal is only noted, too: the terminal must be given back first.
#[derive(Debug)]
pub struct Patience(Interrupt);

impl Interrupt {
    /// From here on the first signal is only noted; a second one ends the process at once, for
    /// users who do not want to wait for a slow device.
    ///
    /// # Errors
    /// [`Failure::System`] where the system refuses a handler.
    pub fn install() -> Result<Self, Failure> {
        let ignored = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let is_heard = |signal: &i32| *signal != SIGHUP || !is_ignored(&ignored, *signal);
        let interrupt = Self {
            requested: Arc::default(),
            impatient: Arc::default(),
            arming: Arc::default(),
            signals: Arc::new(SIGNALS.into_iter().filter(is_heard).collect()),
        };
        for signal in interrupt.signals.iter().copied() {
            // Before the arming: the first signal must find the shutdown not yet armed.
            let impatient = Arc::clone(&interrupt.impatient);
            flag::register_conditional_shutdown(signal, EXIT_CODE, impatient)
                .and_then(|_| flag::register(signal, Arc::clone(&interrupt.requested)))
                .map_err(refused)?;
        }
        interrupt.arm().map_err(refused)?;
        Ok(interrupt)
    }

    /// From here on no signal ends the process at once, until what is returned is dropped.
    #[must_use]
    pub fn be_patient(&self) -> Patience {
        let mut arming = self.arming.lock().unwrap_or_else(PoisonError::into_inner);
        for id in arming.drain(..) {
            low_level::unregister(id);
        }
        self.impatient.store(false, Ordering::SeqCst);
        Patience(self.clone())
    }

    fn arm(&self) -> io::Result<()> {
        let mut arming = self.arming.lock().unwrap_or_else(PoisonError::into_inner);
        for signal in self.signals.iter().copied() {
            arming.push(flag::register(signal, Arc::clone(&self.impatient))?);
        }
        Ok(())
    }

    /// Whether a signal has come.
    #[must_use]
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Ends the work where a signal has come.
    ///
    /// # Errors
    /// [`Failure::Interrupted`] then.
    pub fn check(&self) -> Result<(), Failure> {
        if self.requested() { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        // Where it fails, later signals are only noted: no reason to fail otherwise.
        let _ = self.0.arm();
        if self.0.requested() {
            self.0.impatient.store(true, Ordering::SeqCst);
        }
    }
}

/// Whether the status of a process says that it ignores a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

fn refused(source: io::Error) -> Failure {
    Failure::System { what: "listen for signals", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = "Name:\tesker\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SIGHUP) && is_ignored(status, 13));
        assert!(!is_ignored(status, SIGINT) && !is_ignored("", SIGHUP));
    }
}
