//! Opening the store of a run, on its device.

use std::sync::Arc;

use esker_flash::ssd::SsdDevice;
use esker_peers::{System, system};
use esker_workload::entry::ENTRY_BYTES;

use crate::Result;
use crate::stores::rows::Row;
use crate::stores::sizes::Sizes;
use crate::stores::task::Task;

/// The device of a task whose files are on a simulated one.
pub(crate) fn device(task: &Task) -> Result<Option<Arc<SsdDevice>>> {
    let Some(media) = &task.media else { return Ok(None) };
    let sizes = Sizes::at(task.scale);
    let entries = if task.row == Row::Reopen { sizes.crash_entries } else { sizes.entries };
    // A full merge beside a scan that is held open keeps the old levels, too.
    let times = if task.row == Row::MergeSpace { 4 } else { 3 };
    media.device(&task.folder, entries * ENTRY_BYTES, times).map(Some)
}

/// Opens the store of a task, on its device if it has one.
pub(crate) fn open(task: &Task, device: Option<&Arc<SsdDevice>>) -> Result<Box<dyn System>> {
    let budget_bytes = Sizes::at(task.scale).budget_bytes;
    Ok(match device {
        Some(device) => {
            let device = Arc::clone(device) as _;
            system::open_on(task.system, device, budget_bytes, task.arrangement)?
        }
        None => system::open(task.system, &task.folder, budget_bytes, task.arrangement)?,
    })
}
