//! Opening images, and their errors as failures of the command.

use std::fmt::Display;
use std::io;
use std::path::Path;

use clap::Args;
use esker_latree::{Buffering, Error, FileChip, ImageError, ImageSizes, LaTree, Options};
use esker_permute::units::parse_bytes;
use esker_terminal::exit::Failure;

use super::Image;

/// The tree on an image.
pub(super) type Tree = LaTree<FileChip>;

#[derive(Debug, Args)]
pub(super) struct Memory {
    /// Memory of the tree; a chip of more blocks needs more
    #[arg(long, value_name = "SIZE", default_value = "128KiB")]
    memory: String,
}

impl Memory {
    fn options(&self, subtree_levels: u8) -> Result<Options, Failure> {
        let bytes = parse_bytes(&self.memory).map_err(|error| Failure::Input(error.to_string()))?;
        let memory_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Options { memory_bytes, subtree_levels, ..Options::default() })
    }
}

/// Creates an image with an empty tree.
pub(super) fn create(image: &Image, sizes: ImageSizes) -> Result<(), Failure> {
    let options = image.memory.options(sizes.subtree_levels)?;
    let chip = FileChip::create(&image.path, sizes).map_err(refused)?;
    LaTree::create(chip, options).map(drop).map_err(|error| {
        // It was made here, and holds nothing.
        let _left = std::fs::remove_file(&image.path);
        failed(image, error)
    })
}

/// Opens the tree of an image for reading. Buffers are not emptied: that would be in memory.
pub(super) fn open_to_read(image: &Image) -> Result<Tree, Failure> {
    let chip = FileChip::open_read_only(&image.path).map_err(refused)?;
    let options = image.memory.options(chip.sizes().subtree_levels)?;
    let options = Options { buffering: Buffering::Fixed(usize::MAX), ..options };
    LaTree::open(chip, options).map_err(|error| failed(image, error))
}

/// Opens the tree of an image for writing.
pub(super) fn open_to_write(image: &Image) -> Result<Tree, Failure> {
    let chip = FileChip::open(&image.path).map_err(refused)?;
    let options = image.memory.options(chip.sizes().subtree_levels)?;
    LaTree::open(chip, options).map_err(|error| failed(image, error))
}

/// The failure for an image that cannot be opened.
fn refused(error: ImageError) -> Failure {
    match error {
        ImageError::Locked { .. } => Failure::Locked(error.to_string()),
        ImageError::Damaged { .. } | ImageError::Length { .. } => {
            Failure::Damaged(error.to_string())
        }
        ImageError::Device(device) if device.source.kind() != io::ErrorKind::NotFound => {
            Failure::System { what: "use the image", source: io::Error::other(device) }
        }
        _ => Failure::Input(error.to_string()),
    }
}

/// The failure for an error of the tree on an image.
pub(super) fn failed(image: &Image, error: Error) -> Failure {
    let text = located(&image.path, &error);
    match error {
        Error::Memory { needed_bytes, .. } => {
            Failure::Input(format!("{text}: --memory {}KiB", needed_bytes.div_ceil(1024)))
        }
        Error::Options(_)
        | Error::TooLong { .. }
        | Error::Blank
        | Error::Foreign
        | Error::Newer { .. }
        | Error::Unfinished
        | Error::Geometry(_) => Failure::Input(text),
        Error::Damaged { .. } => Failure::Damaged(text),
        Error::Full | Error::Exhausted => Failure::System {
            what: "write to the image",
            source: io::Error::new(io::ErrorKind::StorageFull, text),
        },
        _ => Failure::System { what: "use the image", source: io::Error::other(text) },
    }
}

fn located(path: &Path, error: &dyn Display) -> String {
    format!("{}: {error}", path.display())
}
