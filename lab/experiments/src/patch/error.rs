//! Errors of the layers below, as those of the laboratory.

use esker_device::DeviceError;

use esker_format::DecodeError;

use crate::Error;

/// Of the page store.
pub fn pages(error: esker_pages::Error) -> Error {
    Error::Run(format!("the page store under the tables: {error}"))
}

/// Of the bytes of a table, the catalogue or the log.
pub fn damaged(error: DecodeError) -> Error {
    Error::Invalid(format!("a table is damaged: {error}"))
}

/// Of the device.
pub fn device(error: DeviceError) -> Error {
    Error::Run(format!("the device under the tables: {error}"))
}
