//! The two ends of a job: the array that is there and the one that is wanted, as files.

use std::path::Path;

use esker_device::AlignedBuf;
use serde_json::Value;

use crate::error::{Result, input, unfit, unusable};
use crate::file::{File, Source as _};
use crate::job::Request;
use crate::layout::{Arrangement, Layout};
use crate::message::{self, Message};
use crate::npy::{self, Header};
use crate::steps::End;
use crate::target::check_free;
use crate::zarr::metadata::Array;
use crate::zarr::{self, codec, folder, keys::Keys, metadata};

/// The largest size of a chunk that is proposed.
const CHUNK_EXAMPLE: u64 = 512;

const ANY: message::Value = message::Value::Any;

fn named(option: &'static str) -> Message {
    Message::default().option(option, ANY)
}

/// The array that is there.
#[derive(Debug)]
pub(crate) struct Input {
    /// Shape and type. Chunks count as an order of their own, not as Fortran's.
    pub(crate) header: Header,
    pub(crate) holder: Holder,
}

/// The file or folder that holds an array.
#[derive(Debug)]
pub(crate) enum Holder {
    /// A file, and where its items begin.
    Flat { file: File, start: u64 },
    /// A folder of chunks.
    Zarr(Box<Array>),
}

/// The array that is wanted.
#[derive(Debug)]
pub(crate) enum Output {
    /// A file; the header comes before its items.
    Flat { header: Vec<u8> },
    /// A folder of chunks.
    Zarr(Box<Array>),
}

impl Input {
    pub(crate) fn end(&self) -> End<'_> {
        match &self.holder {
            Holder::Zarr(array) => zarr::end(array),
            Holder::Flat { .. } => flat(self.header.is_fortran),
        }
    }
}

impl Output {
    pub(crate) fn end(&self) -> End<'_> {
        match self {
            Self::Zarr(array) => zarr::end(array),
            Self::Flat { .. } => flat(false),
        }
    }

    /// Bytes that the result takes, as far as that is known before.
    pub(crate) fn bytes(&self, payload: u64) -> u64 {
        match self {
            Self::Flat { header } => header.len() as u64 + payload,
            Self::Zarr(array) if array.codecs.is_empty() => {
                array.grid.chunk_bytes().saturating_mul(array.grid.chunks())
            }
            Self::Zarr(_) => 0,
        }
    }
}

const fn flat(is_fortran: bool) -> End<'static> {
    End { arrangement: Arrangement::Flat { is_fortran }, coded: None, window: 0 }
}

/// Looks at the input, and whether it is as long as its shape says.
pub(crate) fn look(request: &Request) -> Result<Input> {
    let bare = match (&request.shape, &request.dtype) {
        (Some(_), None) => return input(named("shape").then(" needs ").option("dtype", ANY)),
        (None, Some(_)) => return input(named("dtype").then(" needs ").option("shape", ANY)),
        (shape, dtype) => shape.clone().zip(dtype.as_deref()),
    };
    if request.input.is_dir() {
        if bare.is_some() {
            let both = named("shape").then(" and ").option("dtype", ANY);
            return input(both.then(" are for bare files; a folder has its own metadata"));
        }
        let array = folder::open(&request.input)?;
        let header = Header {
            descr: array.descr.clone(),
            item_bytes: array.grid.item,
            is_fortran: false,
            shape: array.grid.shape.clone(),
        };
        return Ok(Input { header, holder: Holder::Zarr(Box::new(array)) });
    }
    let file = File::open(&request.input)?;
    let (header, start) = match bare {
        Some((shape, dtype)) => {
            let item_bytes = npy::item_bytes(dtype)?;
            let (descr, is_fortran) = (npy::descr_of(dtype), request.is_fortran);
            (Header { descr, item_bytes, is_fortran, shape }, request.offset.unwrap_or(0))
        }
        None => {
            let mut head = AlignedBuf::zeroed(npy::HEADER_MAX);
            let read = file.read(0, &mut head)?;
            Header::parse(&head[..read]).map_err(|error| error.in_file(&request.input))?
        }
    };
    check_length(request, &file, &header, start)?;
    Ok(Input { header, holder: Holder::Flat { file, start } })
}

/// Whether the file is as long as its shape says.
fn check_length(request: &Request, file: &File, from: &Header, start: u64) -> Result<()> {
    let items = from.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    let bytes = items.and_then(|items| items.checked_mul(from.item_bytes));
    let end =
        bytes.and_then(|bytes| bytes.checked_add(start)).filter(|end| *end <= i64::MAX as u64);
    let Some(end) = end else {
        return input(format!("the shape {:?} is larger than any file", from.shape));
    };
    let (path, len) = (request.input.display(), file.len());
    if len < end {
        return unusable(format!(
            "{path} is too short: the shape {:?} of {} bytes each needs {end} bytes, it has {len}",
            from.shape, from.item_bytes
        ));
    }
    if request.dtype.is_some() && request.offset.is_none() && len > end {
        let text = format!(
            "{path} has {len} bytes and the shape {:?} of {} bytes each is {end}: check ",
            from.shape, from.item_bytes
        );
        let both = Message::from(text).option("shape", ANY).then(" and ");
        return unusable(both.option("dtype", ANY));
    }
    Ok(())
}

/// The array that is wanted, as the pattern says it.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// `None` for an array without items.
    pub(crate) layout: Option<&'a Layout>,
    /// Its shape, or a message that says which tiles are short.
    pub(crate) shape: std::result::Result<&'a [u64], &'a str>,
}

/// Decides what is made, and looks whether its place is free: the name that was given, or what is
/// behind it if it is a link.
pub(crate) fn decide(
    request: &Request,
    from: &Input,
    wanted: Wanted<'_>,
    place: &Path,
) -> Result<Output> {
    let path = &request.output;
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let is_flat_name = matches!(extension, "npy" | "raw" | "bin");
    let wants_zarr =
        request.chunks.is_some() || request.zarr_format.is_some() || request.compressor.is_some();
    if is_flat_name && wants_zarr {
        return input(format!(
            "chunks, compressors and versions are Zarr's, and {} is not: end the name in .zarr",
            path.display()
        ));
    }
    if extension == "zarr" || wants_zarr {
        folder::check_free(place, request.force, &request.input)?;
        let array = new_array(request, from, wanted)?;
        array.encode()?;
        return Ok(Output::Zarr(Box::new(array)));
    }
    let identity = match &from.holder {
        Holder::Flat { file, .. } => Some(file.identity()?),
        Holder::Zarr(_) => None,
    };
    check_free(place, request.force, identity)?;
    describe_flat(path, extension, &from.header, wanted)
}

/// The header of a file.
fn describe_flat(
    path: &Path,
    extension: &str,
    from: &Header,
    wanted: Wanted<'_>,
) -> Result<Output> {
    let header = match (extension, wanted.shape) {
        ("npy", Ok(shape)) => {
            let Header { descr, item_bytes, .. } = from.clone();
            Header { descr, item_bytes, is_fortran: false, shape: shape.to_vec() }.encode()
        }
        ("npy", Err(short)) => {
            return unfit(format!(
                "{short}: give sizes that do, or write to a name that ends in .raw: tile after \
                 tile, the last ones short"
            ));
        }
        ("raw" | "bin", _) => Vec::new(),
        _ => {
            return unusable(format!(
                "{}: the name says the format: end it in .npy, .raw, .bin or .zarr",
                path.display()
            ));
        }
    };
    Ok(Output::Flat { header })
}

/// The metadata of a Zarr array: what was asked for, then what the input has.
fn new_array(request: &Request, from: &Input, wanted: Wanted<'_>) -> Result<Array> {
    let shape = match wanted.shape {
        Ok(shape) => shape,
        Err(short) => {
            let text = format!(
                "{short}, and a Zarr array has whole dimensions: leave the tiles out of the \
                 pattern and give them as "
            );
            return unfit(Message::from(text).option("chunks", ANY));
        }
    };
    let old = match &from.holder {
        Holder::Zarr(array) => Some(array.as_ref()),
        Holder::Flat { .. } => None,
    };
    let format = request.zarr_format.or(old.map(|old| old.format)).unwrap_or(3);
    if !matches!(format, 2 | 3) {
        return input(format!("Zarr has versions 2 and 3, not {format}"));
    }
    let origins = wanted.layout.map_or_else(|| vec![None; shape.len()], Layout::origins);
    let chunk = chunks(request, old, &origins, shape)?;
    let descr = &from.header.descr;
    let grid = metadata::grid(shape.to_vec(), chunk, (0..shape.len()).collect(), descr)?;
    let mut codecs: Vec<codec::Codec> = match &request.compressor {
        Some(name) => codec::named(name, grid.item, format)?,
        None => old.map_or_else(Vec::new, |old| {
            old.codecs.iter().filter_map(|codec| codec.in_format(format)).collect()
        }),
    };
    if format == 2 {
        codecs.truncate(1);
    }
    let same = old.filter(|old| old.format == format);
    let separator = same.map_or(if format == 3 { '/' } else { '.' }, |old| old.keys.separator);
    let mut array = Array {
        format,
        keys: Keys { has_prefix: format == 3, separator },
        fill: old.map_or_else(|| vec![0; from.header.item_bytes as usize], |o| o.fill.clone()),
        data_type: same.and_then(|old| old.data_type.clone()),
        fill_value: same.and_then(|old| old.fill_value.clone()),
        attributes: old.map(|old| old.attributes.clone()).unwrap_or_default(),
        dimension_names: None,
        descr: descr.clone(),
        grid,
        codecs,
    };
    name_dimensions(&mut array, old, &origins);
    Ok(array)
}

/// The chunks asked for, or those of the input in the new order.
fn chunks(
    request: &Request,
    old: Option<&Array>,
    origins: &[Option<usize>],
    shape: &[u64],
) -> Result<Vec<u64>> {
    if let Some(chunks) = &request.chunks {
        if chunks.len() != shape.len() {
            let text =
                format!(" has {} sizes and the result {} dimensions", chunks.len(), shape.len());
            return input(named("chunks").then(text));
        }
        return Ok(chunks.clone());
    }
    let kept: Option<Vec<u64>> = old.and_then(|old| {
        let dims = origins.iter().zip(shape);
        let chunk = dims.map(|(origin, size)| match origin {
            Some(dim) => old.grid.chunk.get(*dim).copied(),
            None => (*size <= 1).then_some(1),
        });
        chunk.collect()
    });
    match kept {
        Some(chunks) => Ok(chunks),
        None => {
            let example = shape.iter().map(|size| (*size).clamp(1, CHUNK_EXAMPLE)).collect();
            let text = Message::from("give the sizes of chunks, such as ");
            input(text.option("chunks", message::Value::Sizes(example)))
        }
    }
}

/// The name under which xarray keeps names of dimensions in version 2.
const V2_DIMENSIONS: &str = "_ARRAY_DIMENSIONS";

/// Names of dimensions move with them, from one version to the other too.
fn name_dimensions(array: &mut Array, old: Option<&Array>, origins: &[Option<usize>]) {
    let attribute = array.attributes.remove(V2_DIMENSIONS);
    let listed = attribute.as_ref().and_then(Value::as_array);
    let Some(names) = old.and_then(|old| old.dimension_names.as_ref()).or(listed) else { return };
    let moved: Option<Vec<Value>> =
        origins.iter().map(|origin| names.get((*origin)?).cloned()).collect();
    let Some(moved) = moved else { return };
    if array.format == 3 {
        array.dimension_names = Some(moved);
    } else if moved.iter().all(Value::is_string) {
        array.attributes.insert(V2_DIMENSIONS.to_owned(), Value::Array(moved));
    }
}
