//! Futures that never wait: those of stores over flash that is in memory.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::error::{Result, broken};

/// The answer of a future whose first poll answers it.
///
/// # Errors
/// A future that waits: a bug.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Ok(answer),
        Poll::Pending => broken("a store over simulated flash waits"),
    }
}
