//! Errors of the layers below, as those of the laboratory.

use esker_device::DeviceError;

use crate::Error;

/// Of the page store.
pub fn pages(error: esker_pages::Error) -> Error {
    Error::Run(format!("the page store under the tables: {error}"))
}

/// Of the device.
pub fn device(error: DeviceError) -> Error {
    Error::Run(format!("the device under the tables: {error}"))
}
