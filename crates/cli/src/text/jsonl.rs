//! One JSON object a line: `{"k":"…","v":"…"}`.
//!
//! JSON strings hold text only, so a key or value that is not UTF-8 goes as `k64` or `v64`, in
//! base64 with padding. Exactly one of `k` and `k64`, one of `v` and `v64`, and nothing else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{Entry, LineError};

pub(super) fn encode(key: &[u8], value: &[u8], line: &mut Vec<u8>) {
    let mut entry = Map::new();
    insert(&mut entry, "k", "k64", key);
    insert(&mut entry, "v", "v64", value);
    for &byte in Value::Object(entry).to_string().as_bytes() {
        match byte {
            // The only control byte that JSON allows unescaped.
            0x7f => line.extend_from_slice(b"\\u007f"),
            _ => line.push(byte),
        }
    }
}

pub(super) fn insert(
    entry: &mut Map<String, Value>,
    text_name: &str,
    base64_name: &str,
    bytes: &[u8],
) {
    let (name, text) = match str::from_utf8(bytes) {
        Ok(text) => (text_name, text.to_owned()),
        Err(_) => (base64_name, STANDARD.encode(bytes)),
    };
    entry.insert(name.to_owned(), Value::String(text));
}

pub(super) fn decode(line: &[u8]) -> Result<Entry, LineError> {
    let parsed = serde_json::from_slice(line)
        .map_err(|error| LineError::NotJson { column: error.column() })?;
    let Value::Object(mut entry) = parsed else {
        return Err(LineError::NotAnEntry("this is JSON, but not an object"));
    };
    let key = take(&mut entry, "k", "k64").map_err(|fault| {
        LineError::NotAnEntry(match fault {
            Fault::Names => "the object needs either \"k\" or \"k64\"",
            Fault::NotAString => "the key is not a string",
            Fault::NotBase64 => "\"k64\" is not base64",
        })
    })?;
    let value = take(&mut entry, "v", "v64").map_err(|fault| {
        LineError::NotAnEntry(match fault {
            Fault::Names => "the object needs either \"v\" or \"v64\"",
            Fault::NotAString => "the value is not a string",
            Fault::NotBase64 => "\"v64\" is not base64",
        })
    })?;
    if !entry.is_empty() {
        let what = "the object has members other than \"k\", \"k64\", \"v\" and \"v64\"";
        return Err(LineError::NotAnEntry(what));
    }
    Ok((key, value))
}

enum Fault {
    Names,
    NotAString,
    NotBase64,
}

fn take(
    entry: &mut Map<String, Value>,
    text_name: &str,
    base64_name: &str,
) -> Result<Vec<u8>, Fault> {
    match (entry.remove(text_name), entry.remove(base64_name)) {
        (Some(Value::String(text)), None) => Ok(text.into_bytes()),
        (None, Some(Value::String(text))) => STANDARD.decode(text).map_err(|_| Fault::NotBase64),
        (Some(_), None) | (None, Some(_)) => Err(Fault::NotAString),
        (Some(_), Some(_)) | (None, None) => Err(Fault::Names),
    }
}
