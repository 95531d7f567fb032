//! Metadata that groups have of the arrays in them: consolidated metadata.
//!
//! A group may hold a copy of the metadata of everything below it (`.zmetadata` in version 2,
//! `consolidated_metadata` of its `zarr.json` in version 3), so that one read opens it. Readers
//! believe the copy: an array that it lacks is not there for them, and one that was replaced has
//! its old shape. So the copies of all groups above an array that is made are brought up to date.
//! All else in them stays as it was written, numbers too.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::retry_on_intr;
use serde_json::value::RawValue;

use super::folder::text;
use super::metadata::{Array, V3_NAME};
use crate::error::{Error, Result, unusable};
use crate::file::Sink as _;
use crate::message::Message;
use crate::planted::{self, Bug};
use crate::target::{Target, behind_links, folder_of};

/// The copy of version 2.
const V2_COPY: &str = ".zmetadata";
/// The file that makes a folder a group in version 2.
const V2_GROUP: &str = ".zgroup";
/// The member of a group's `zarr.json` that is the copy of version 3.
const V3_COPY: &str = "consolidated_metadata";
/// The longest copy that is read, in bytes.
const COPY_MAX: u64 = 256 << 20;

type Object = BTreeMap<String, Box<RawValue>>;

/// Brings the groups above an array that was just made up to date; answers what could not be.
pub(crate) fn announce(path: &Path, array: &Array) -> Vec<Message> {
    let mut warnings = Vec::new();
    if planted::is(Bug::GroupsNotTold) {
        return warnings;
    }
    let (Ok(mut above), Some(name)) = (fs::canonicalize(folder_of(path)), path.file_name()) else {
        return warnings;
    };
    let mut key = name.to_string_lossy().into_owned();
    loop {
        match in_group(&above, &key, array) {
            Ok(true) => {}
            Ok(false) => return warnings,
            Err(error) => warnings.push(Message::from(format!(
                "{} is complete, but consolidated metadata above it does not say so ({error}): \
                 call zarr.consolidate_metadata for the group {}",
                path.display(),
                above.display()
            ))),
        }
        let Some(name) = above.file_name() else { return warnings };
        key = format!("{}/{key}", name.to_string_lossy());
        if !above.pop() {
            return warnings;
        }
    }
}

/// Puts the array into the copies of one group; whether the folder is a group.
fn in_group(group: &Path, key: &str, array: &Array) -> Result<bool> {
    let (old, new) = (group.join(V2_COPY), group.join(V3_NAME));
    let is_old = old.exists();
    let has_new = new.exists();
    if !is_old && !has_new {
        return Ok(group.join(V2_GROUP).exists());
    }
    // Several results may come into one group at the same time.
    let _lock = locked(group);
    let mut is_group = is_old || group.join(V2_GROUP).exists();
    if is_old {
        change(&old, |object| v2(object, key, array))?;
    }
    if has_new {
        change(&new, |object| {
            is_group |= object.get("node_type").is_some_and(|node| node.get() == "\"group\"");
            v3(object, key, array)
        })?;
    }
    Ok(is_group)
}

fn locked(group: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let folder = rustix::fs::open(group, flags, Mode::empty()).ok()?;
    // A file system without locks has one writer of a group at a time, or loses one.
    retry_on_intr(|| flock(&folder, FlockOperation::LockExclusive)).ok()?;
    Some(folder)
}

/// Reads a file, and writes it anew if there is something to change.
fn change(path: &Path, edit: impl FnOnce(&mut Object) -> Result<bool>) -> Result<()> {
    let place: PathBuf = behind_links(path)?;
    let Some(bytes) = text(&place, COPY_MAX)? else { return Ok(()) };
    let changed = edited(&bytes, edit).map_err(|error| error.in_file(path))?;
    let Some(bytes) = changed else { return Ok(()) };
    let target = Target::create(&place, 0)?;
    target.file().write_part(0, bytes.as_bytes())?;
    target.commit(&place, true)
}

/// The text with the change, if it is one.
fn edited(bytes: &[u8], edit: impl FnOnce(&mut Object) -> Result<bool>) -> Result<Option<String>> {
    let mut object = parsed(bytes)?;
    if edit(&mut object)? { encoded(&object).map(Some) } else { Ok(None) }
}

/// The copy of version 2: a key a file.
fn v2(object: &mut Object, key: &str, array: &Array) -> Result<bool> {
    if object.get("zarr_consolidated_format").is_none_or(|format| format.get() != "1") {
        return unusable("its form is not known");
    }
    let mut entries = member(object, "metadata")?;
    let below = format!("{key}/");
    let count = entries.len();
    entries.retain(|name, _| !name.starts_with(&below));
    let mut is_changed = entries.len() != count;
    if array.format == 2 {
        for (name, text) in array.encode()? {
            entries.insert(format!("{key}/{name}"), raw(text)?);
            is_changed = true;
        }
    }
    object.insert("metadata".to_owned(), raw(encoded(&entries)?)?);
    Ok(is_changed)
}

/// The copy of version 3: a key an array or group.
fn v3(object: &mut Object, key: &str, array: &Array) -> Result<bool> {
    let Some(copy) = object.get(V3_COPY).filter(|copy| copy.get() != "null") else {
        return Ok(false);
    };
    let mut copy = parsed(copy.get().as_bytes())?;
    if copy.get("kind").is_none_or(|kind| kind.get() != "\"inline\"") {
        return unusable("its form is not known");
    }
    let mut entries = member(&copy, "metadata")?;
    let mut is_changed = entries.remove(key).is_some();
    if array.format == 3 {
        for (_, text) in array.encode()? {
            entries.insert(key.to_owned(), raw(text)?);
            is_changed = true;
        }
    }
    copy.insert("metadata".to_owned(), raw(encoded(&entries)?)?);
    object.insert(V3_COPY.to_owned(), raw(encoded(&copy)?)?);
    Ok(is_changed)
}

fn member(object: &Object, name: &str) -> Result<Object> {
    match object.get(name) {
        Some(value) => parsed(value.get().as_bytes()),
        None => unusable(format!("it has no '{name}'")),
    }
}

fn parsed(text: &[u8]) -> Result<Object> {
    serde_json::from_slice(text)
        .map_err(|error| Error::File(format!("it is no JSON object: {error}").into()))
}

fn encoded(object: &Object) -> Result<String> {
    serde_json::to_string(object).map_err(|_| Error::Internal("metadata that cannot be written"))
}

fn raw(text: String) -> Result<Box<RawValue>> {
    RawValue::from_string(text).map_err(|_| Error::Internal("metadata that is no JSON"))
}
