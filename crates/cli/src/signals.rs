//! SIGINT and SIGTERM as a question that long work asks itself.
//!
//! Only commands that have something to finish install this; the others end at once, as any
//! command does, and the store is none the worse for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Failure;

const EXIT_CODE: i32 = 130;

/// Whether the user asked for an end.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From here on the first signal is only noted; a second one ends the process at once, for
    /// whoever will not wait for a slow device.
    pub(crate) fn install() -> Result<Self, Failure> {
        let requested = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal must find the shutdown not yet armed.
            flag::register_conditional_shutdown(signal, EXIT_CODE, Arc::clone(&requested))
                .and_then(|_| flag::register(signal, Arc::clone(&requested)))
                .map_err(refused)?;
        }
        Ok(Self(requested))
    }

    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.requested() { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

fn refused(source: io::Error) -> Failure {
    Failure::System { what: "listen for signals", source }
}
