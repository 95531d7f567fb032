//! Calls of merge operators: user code, which may panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::MergeOperator;

/// The result of `operator`, or the reason for its failure.
///
/// A panic ends here. The store's state does not change while the operator runs, so that nothing is
/// left half changed; the operator's own state is its own concern.
pub(super) fn merge(
    operator: &dyn MergeOperator,
    key: &[u8],
    older: &[u8],
    newer: &[u8],
) -> Result<Vec<u8>, String> {
    match catch_unwind(AssertUnwindSafe(|| operator.merge(key, older, newer))) {
        Ok(Ok(merged)) => Ok(merged),
        Ok(Err(error)) => Err(said(|| error.to_string())),
        Err(panic) => {
            let why = message(panic.as_ref()).to_string();
            // Dropping the panic's payload runs user code too.
            let _dropped = catch_unwind(AssertUnwindSafe(|| drop(panic)));
            Err(format!("it panicked ({why})"))
        }
    }
}

/// Returns the text of an error. Its description is user code too, which may panic.
fn said(tell: impl FnOnce() -> String) -> String {
    catch_unwind(AssertUnwindSafe(tell)).unwrap_or_else(|_| "an error without words".into())
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
