//! The metadata of an array: `.zarray` (version 2) and `zarr.json` (version 3).
//!
//! Nothing in it is trusted: sizes are multiplied with care, and what is not known is refused by
//! name. Byte order and a transposition inside of chunks become part of the type and of the grid,
//! so that only codecs from bytes to bytes are left.

use serde_json::{Map, Value, json};

use super::codec::{self, Codec};
use super::dtype;
use super::grid::Grid;
use super::keys::Keys;
use crate::error::{Result, unusable};
use crate::npy;
use crate::resolve::AXES_MAX;

/// The file of version 2, and that of its attributes.
pub const V2_NAME: &str = ".zarray";
/// The attributes of version 2.
pub const V2_ATTRIBUTES: &str = ".zattrs";
/// The file of version 3.
pub const V3_NAME: &str = "zarr.json";

/// An array.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// 2 or 3.
    pub format: u8,
    /// Sizes, chunks, the order inside of chunks.
    pub grid: Grid,
    /// The type of an item, as `.npy` calls it.
    pub descr: String,
    /// The names of chunks.
    pub keys: Keys,
    /// From the bytes of a chunk to those of its file.
    pub codecs: Vec<Codec>,
    /// The bytes of an item in a chunk that is missing.
    pub fill: Vec<u8>,
    /// The type as version 3 names it, if that is known.
    pub data_type: Option<Value>,
    /// The fill value as its version writes it, if that is known.
    pub fill_value: Option<Value>,
    /// Attributes of the user.
    pub attributes: Map<String, Value>,
    /// Names of the dimensions, in version 3.
    pub dimension_names: Option<Vec<Value>>,
}

type Object = Map<String, Value>;

fn missing<T>(key: &str) -> Result<T> {
    unusable(format!("it has no usable '{key}'"))
}

fn object(text: &[u8]) -> Result<Object> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => unusable("it is no JSON object"),
        Err(error) => unusable(format!("it is no JSON: {error}")),
    }
}

fn sizes(value: Option<&Value>, key: &str) -> Result<Vec<u64>> {
    let sizes = value.and_then(Value::as_array).and_then(|sizes| {
        let in_range = |size: &Value| size.as_u64().filter(|size| *size <= i64::MAX as u64);
        sizes.iter().map(in_range).collect::<Option<Vec<u64>>>()
    });
    match sizes {
        Some(sizes) if sizes.len() > AXES_MAX => {
            unusable(format!("it has more than {AXES_MAX} dimensions"))
        }
        Some(sizes) => Ok(sizes),
        None => missing(key),
    }
}

fn separator(value: Option<&Value>, default: char) -> Result<char> {
    match value {
        None => Ok(default),
        Some(value) if value == "." => Ok('.'),
        Some(value) if value == "/" => Ok('/'),
        Some(_) => missing("separator"),
    }
}

/// The grid, if its sizes can be counted with.
pub(crate) fn grid(
    shape: Vec<u64>,
    chunk: Vec<u64>,
    inner: Vec<usize>,
    descr: &str,
) -> Result<Grid> {
    let item = npy::item_bytes(descr)?;
    if chunk.len() != shape.len() {
        return unusable(format!(
            "its chunks have {} dimensions and the array has {}",
            chunk.len(),
            shape.len()
        ));
    }
    if chunk.contains(&0) {
        return unusable("its chunks have a size of 0");
    }
    let mut sorted = inner.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..shape.len()) {
        return missing("order");
    }
    let bytes = |sizes: &[u64]| {
        let product = sizes.iter().try_fold(item, |product, size| product.checked_mul(*size));
        product.filter(|bytes| *bytes <= i64::MAX as u64)
    };
    let whole: Vec<u64> = shape.iter().map(|size| (*size).max(1)).collect();
    if bytes(&whole).is_none() || bytes(&chunk).is_none() {
        return unusable("its sizes are larger than any file");
    }
    Ok(Grid { shape, chunk, inner, item })
}

impl Array {
    /// Reads `.zarray`, and `.zattrs` where there is one.
    pub fn parse_v2(text: &[u8], attributes: Option<&[u8]>) -> Result<Self> {
        let found = object(text)?;
        if found.get("zarr_format").and_then(Value::as_u64) != Some(2) {
            return missing("zarr_format");
        }
        let shape = sizes(found.get("shape"), "shape")?;
        let chunk = sizes(found.get("chunks"), "chunks")?;
        let descr = match found.get("dtype") {
            Some(Value::String(descr)) => npy::descr_of(descr),
            Some(Value::Array(_)) => return unusable("its items are records with fields"),
            _ => return missing("dtype"),
        };
        let dims = 0..shape.len();
        let inner = match found.get("order").and_then(Value::as_str) {
            Some("C") => dims.collect(),
            Some("F") => dims.rev().collect(),
            _ => return missing("order"),
        };
        let grid = grid(shape, chunk, inner, &descr)?;
        match found.get("filters") {
            None | Some(Value::Null) => {}
            Some(Value::Array(filters)) if filters.is_empty() => {}
            Some(Value::Array(filters)) => {
                let id = filters[0].get("id").and_then(Value::as_str).unwrap_or("?");
                return unusable(format!("its filter '{id}' is not supported"));
            }
            Some(_) => return missing("filters"),
        }
        let codecs = match found.get("compressor") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Object(settings)) => {
                let Some(id) = settings.get("id").and_then(Value::as_str) else {
                    return missing("compressor");
                };
                vec![codec::parse(id, settings, grid.item)?]
            }
            Some(_) => return missing("compressor"),
        };
        let separator = separator(found.get("dimension_separator"), '.')?;
        let fill_value = found.get("fill_value").cloned();
        let fill = fill(&descr, fill_value.as_ref())?;
        let keys = Keys { has_prefix: false, separator };
        let attributes = attributes.map_or_else(|| Ok(Object::new()), object)?;
        Ok(Self {
            format: 2,
            grid,
            descr,
            keys,
            codecs,
            fill,
            data_type: None,
            fill_value,
            attributes,
            dimension_names: None,
        })
    }

    /// Reads `zarr.json`.
    pub fn parse_v3(text: &[u8]) -> Result<Self> {
        let found = object(text)?;
        if found.get("zarr_format").and_then(Value::as_u64) != Some(3) {
            return missing("zarr_format");
        }
        match found.get("node_type").and_then(Value::as_str) {
            Some("array") => {}
            Some("group") => return unusable("it is a group: name one of its arrays"),
            _ => return missing("node_type"),
        }
        if found
            .get("storage_transformers")
            .and_then(Value::as_array)
            .is_some_and(|t| !t.is_empty())
        {
            return unusable("its storage transformers are not supported");
        }
        let shape = sizes(found.get("shape"), "shape")?;
        let (name, settings) = named(found.get("chunk_grid"), "chunk_grid")?;
        if name != "regular" {
            return unusable(format!("its chunk grid '{name}' is not supported"));
        }
        let chunk = sizes(settings.get("chunk_shape"), "chunk_shape")?;
        let Some(data_type) = found.get("data_type") else { return missing("data_type") };
        let chain = chain(found.get("codecs"), shape.len())?;
        let descr = dtype::of_v3(data_type, chain.is_big)?;
        let grid = grid(shape, chunk, chain.inner, &descr)?;
        let parsed =
            chain.rest.iter().map(|(name, settings)| codec::parse(name, settings, grid.item));
        let codecs = parsed.collect::<Result<Vec<Codec>>>()?;
        let fill_value = found.get("fill_value").cloned();
        let fill = fill(&descr, fill_value.as_ref())?;
        let attributes = match found.get("attributes") {
            None => Object::new(),
            Some(Value::Object(attributes)) => attributes.clone(),
            Some(_) => return missing("attributes"),
        };
        let names = found.get("dimension_names").and_then(Value::as_array);
        let dimension_names = names.filter(|names| names.len() == grid.shape.len()).cloned();
        Ok(Self {
            format: 3,
            keys: keys_v3(found.get("chunk_key_encoding"))?,
            grid,
            descr,
            codecs,
            fill,
            data_type: Some(data_type.clone()),
            fill_value,
            attributes,
            dimension_names,
        })
    }

    /// The metadata files: names and texts.
    pub fn encode(&self) -> Result<Vec<(&'static str, String)>> {
        let pretty = |value: Value| format!("{value:#}\n");
        if self.format == 3 {
            return Ok(vec![(V3_NAME, pretty(self.to_v3()?))]);
        }
        let mut files = vec![(V2_NAME, pretty(self.to_v2()))];
        if !self.attributes.is_empty() {
            files.push((V2_ATTRIBUTES, pretty(Value::Object(self.attributes.clone()))));
        }
        Ok(files)
    }

    fn fill_json(&self) -> Value {
        let known = self.fill_value.clone();
        known.unwrap_or_else(|| dtype::fill_value(&self.descr, &self.fill))
    }

    fn to_v2(&self) -> Value {
        let compressor = self.codecs.first().map_or(Value::Null, |codec| codec.to_v2());
        json!({
            "zarr_format": 2,
            "shape": self.grid.shape,
            "chunks": self.grid.chunk,
            "dtype": self.descr,
            "compressor": compressor,
            "fill_value": self.fill_json(),
            "order": "C",
            "filters": null,
            "dimension_separator": self.keys.separator.to_string(),
        })
    }

    fn to_v3(&self) -> Result<Value> {
        let data_type = match &self.data_type {
            Some(data_type) => data_type.clone(),
            None => dtype::to_v3(&self.descr)?,
        };
        let endian = if self.descr.starts_with('>') { "big" } else { "little" };
        let bytes = if self.descr.starts_with('|') {
            json!({"name": "bytes"})
        } else {
            json!({"name": "bytes", "configuration": {"endian": endian}})
        };
        let mut codecs = vec![bytes];
        codecs.extend(self.codecs.iter().map(|codec| codec.to_v3()));
        let mut value = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": self.grid.shape,
            "data_type": data_type,
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": self.grid.chunk},
            },
            "chunk_key_encoding": {
                "name": "default",
                "configuration": {"separator": self.keys.separator.to_string()},
            },
            "fill_value": self.fill_json(),
            "codecs": codecs,
            "attributes": self.attributes,
        });
        if let (Some(names), Some(object)) = (&self.dimension_names, value.as_object_mut()) {
            object.insert("dimension_names".to_owned(), Value::Array(names.clone()));
        }
        Ok(value)
    }
}

fn fill(descr: &str, value: Option<&Value>) -> Result<Vec<u8>> {
    let value = value.unwrap_or(&Value::Null);
    match dtype::fill(descr, value) {
        Some(bytes) => Ok(bytes),
        None => unusable(format!("its fill value {value} does not fit its type {descr}")),
    }
}

/// A name, with its configuration if it has one.
fn named(value: Option<&Value>, key: &str) -> Result<(String, Object)> {
    match value {
        Some(Value::String(name)) => Ok((name.clone(), Object::new())),
        Some(Value::Object(object)) => {
            let Some(name) = object.get("name").and_then(Value::as_str) else {
                return missing(key);
            };
            let settings = object.get("configuration").and_then(Value::as_object);
            Ok((name.to_owned(), settings.cloned().unwrap_or_default()))
        }
        _ => missing(key),
    }
}

fn keys_v3(value: Option<&Value>) -> Result<Keys> {
    let (name, settings) = named(value, "chunk_key_encoding")?;
    let has_prefix = match name.as_str() {
        "default" => true,
        "v2" => false,
        _ => return unusable(format!("its chunk names '{name}' are not supported")),
    };
    let default = if has_prefix { '/' } else { '.' };
    Ok(Keys { has_prefix, separator: separator(settings.get("separator"), default)? })
}

/// The codecs of version 3, sorted.
struct Chain {
    inner: Vec<usize>,
    is_big: bool,
    /// From bytes to bytes.
    rest: Vec<(String, Object)>,
}

fn chain(value: Option<&Value>, dims: usize) -> Result<Chain> {
    let Some(list) = value.and_then(Value::as_array) else { return missing("codecs") };
    let mut codecs = list.iter().map(|codec| named(Some(codec), "codecs"));
    let mut inner: Vec<usize> = (0..dims).collect();
    loop {
        let (name, settings) = match codecs.next() {
            Some(codec) => codec?,
            None => return unusable("its codecs lack 'bytes'"),
        };
        match name.as_str() {
            "transpose" => inner = transposed(&inner, settings.get("order"))?,
            "bytes" => {
                let is_big = match settings.get("endian").map(|endian| endian.as_str()) {
                    None | Some(Some("little")) => false,
                    Some(Some("big")) => true,
                    Some(_) => return missing("endian"),
                };
                return Ok(Chain { inner, is_big, rest: codecs.collect::<Result<_>>()? });
            }
            "sharding_indexed" => {
                return unusable(
                    "its chunks are shards, which are not supported: rewrite it without shards",
                );
            }
            _ => return unusable(format!("its codec '{name}' is not supported")),
        }
    }
}

/// The dimensions after a transposition, of which dimension i is `order[i]` before.
fn transposed(inner: &[usize], order: Option<&Value>) -> Result<Vec<usize>> {
    let order = match order {
        Some(Value::Array(order)) => order
            .iter()
            .map(|dim| Some(*inner.get(usize::try_from(dim.as_u64()?).ok()?)?))
            .collect(),
        // As versions before 3.0 of the specification had it.
        Some(Value::String(letter)) if letter == "C" => Some(inner.to_vec()),
        Some(Value::String(letter)) if letter == "F" => Some(inner.iter().rev().copied().collect()),
        _ => None,
    };
    match order.filter(|order: &Vec<usize>| order.len() == inner.len()) {
        Some(order) => Ok(order),
        None => missing("order"),
    }
}

#[cfg(test)]
mod tests;
