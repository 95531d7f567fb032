//! All options, with defaults and checked ranges. Nothing else configures a store: there are no
//! globals and no environment variables.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use esker_format::VALUE_BYTES_MAX;
use esker_format::block::Codec;
use esker_format::manifest_edit::keyspace_name_is_valid;
use esker_index::fdtree::Sizes;
use esker_index::read::operands::{MergeOperator, Operator};
use esker_index::{IndexKind, Scheme};

use crate::compaction::Compaction;
use crate::error::{Error, Result};
use crate::history::{History, Share};
use crate::operators::{self, Merge};
use crate::work_queue::Mode;

/// The point at which a write returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The write returns when its log record has been passed to the operating system. It then
    /// survives the end of the process, but not a power cut; a later
    /// [`Db::persist`](crate::Db::persist) or synced write makes it durable.
    #[default]
    Buffered,
    /// The write returns when its log record is on the device. One sync serves all writers that
    /// wait.
    Synced,
}

/// The compression of a keyspace's data blocks.
///
/// A block that does not get shorter is stored uncompressed, and after several such blocks in a row
/// the next ones are not tried: data that does not compress costs little time and no space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4: fast to compress, and faster to decompress.
    Lz4,
    /// Zstandard: compresses better than LZ4, at several times its cost.
    Zstd,
}

impl Compression {
    /// All kinds of compression.
    pub const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

    /// The name: `none`, `lz4` or `zstd`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.codec().name()
    }

    /// Whether this build has the codec: LZ4 and Zstandard are the features `lz4` and `zstd`, both
    /// on by default. Without the codec, a keyspace with this compression cannot be created, and a
    /// store that has one cannot be opened.
    #[must_use]
    pub const fn is_available(self) -> bool {
        self.codec().is_available()
    }

    pub(crate) const fn codec(self) -> Codec {
        match self {
            Self::None => Codec::None,
            Self::Lz4 => Codec::Lz4,
            Self::Zstd => Codec::Zstd,
        }
    }

    pub(crate) const fn of(codec: Codec) -> Self {
        match codec {
            Codec::None => Self::None,
            Codec::Lz4 => Self::Lz4,
            Codec::Zstd => Self::Zstd,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| {
            Error::invalid(format!("compression is none, lz4 or zstd, and not {name:?}"))
        })
    }
}

/// Options of one keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceOptions {
    pub(crate) memtable_bytes: Option<u64>,
    pub(crate) compression: Option<Compression>,
    pub(crate) inline_bytes_max: Option<u64>,
    pub(crate) merge: Option<Chosen>,
    pub(crate) index: Option<IndexKind>,
    pub(crate) history: Option<History>,
    pub(crate) history_share: Option<Share>,
}

/// A merge operator and its name.
#[derive(Clone)]
pub(crate) struct Chosen {
    pub name: Arc<str>,
    pub function: Arc<dyn MergeOperator>,
    /// Whether it is one of the built-in operators.
    is_own: bool,
}

impl Chosen {
    /// The same for a keyspace.
    pub fn of(&self, keyspace: &str) -> Operator {
        let (name, function) = (Arc::clone(&self.name), Arc::clone(&self.function));
        Operator { name: Some(name), keyspace: keyspace.into(), function: Some(function) }
    }

    fn validate(&self) -> Result<()> {
        if !keyspace_name_is_valid(&self.name) {
            return Err(Error::invalid(
                "the name of a merge operator is 1 to 255 bytes without control characters",
            ));
        }
        if self.name.starts_with(operators::RESERVED) && !self.is_own {
            let what = "names of merge operators that begin with esker. are esker's own";
            return Err(Error::invalid(what));
        }
        Ok(())
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Chosen").field(&self.name).finish()
    }
}

impl PartialEq for Chosen {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && (self.is_own || Arc::ptr_eq(&self.function, &other.function))
    }
}

impl Eq for Chosen {}

impl KeyspaceOptions {
    /// The size at which the keyspace's memtable is flushed, 1 KiB to 1 TiB; with `None`, the
    /// default, half of the store's memory budget. The size with which a keyspace is created is
    /// stored; a size given for an existing keyspace applies until the store is closed.
    #[must_use]
    pub const fn memtable_bytes(mut self, bytes: Option<u64>) -> Self {
        self.memtable_bytes = bytes;
        self
    }

    /// The compression of data blocks; none by default. The choice is stored. If it is changed for
    /// an existing keyspace, it applies to blocks that are written from then on; older blocks stay
    /// as they are, and readable, until a merge rewrites them. If the option is not given, an
    /// existing keyspace keeps its compression.
    ///
    /// A store that has had a compressed keyspace is refused by versions without compression.
    #[must_use]
    pub const fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// The kind of index of the keyspace, fixed when the keyspace is created; an FD+tree by
    /// default. For an existing keyspace, a different kind is refused; the option need not be given
    /// again.
    ///
    /// A store that has had an LSM index is refused by versions without LSM indexes.
    #[must_use]
    pub const fn index(mut self, index: IndexKind) -> Self {
        self.index = Some(index);
        self
    }

    /// Keeps earlier versions of the keyspace readable: see [`Keyspace::at`](crate::Keyspace::at)
    /// and [`Keyspace::history`](crate::Keyspace::history). Chosen when the keyspace is created;
    /// the option need not be given again. For a keyspace that is there,
    /// [`Keyspace::set_history`](crate::Keyspace::set_history) begins or changes it. Not together
    /// with a merge operator or an LSM index.
    ///
    /// A value with a time to live has expired in a version if its time had run out when that
    /// version was committed.
    ///
    /// All writes of a batch or transaction become one version.
    ///
    /// A store that has had a keyspace with history is refused by versions without history.
    #[must_use]
    pub const fn history(mut self, history: History) -> Self {
        self.history = Some(history);
        self
    }

    /// How many superseded entries a keyspace with history may have next to the live ones, as a
    /// share of all, 0.2 to 0.8; 0.5 by default. When there are more, the live entries are copied
    /// into an index of their own, and the index that they were in stays as it is, for readers of
    /// earlier versions. So a scan of the present passes at most 1 / (1 - `share`) versions of a
    /// key on average, and what was written while the last compaction ran; and where everything is
    /// overwritten all the time, each version is on the device about 1 / `share` times. 1.0:
    /// nothing is copied, and scans pass all versions.
    ///
    /// Fixed when the keyspace is created; for an existing keyspace, another one is refused.
    #[must_use]
    pub fn history_share(mut self, share: f64) -> Self {
        self.history_share = Some(Share::of(share));
        self
    }

    /// The longest value that is stored with its key, 0 to 256 KiB, which is also the default.
    /// Longer values are stored as blobs (key-value separation): they are written once, to the data
    /// file and not to the log, and merges move a reference of some 20 bytes. But each blob takes
    /// whole units of 4 KiB, a synced write waits for the data file too, and each lookup needs one
    /// more read. The option applies to later writes, until the store is closed.
    ///
    /// A store that has had a blob is refused by versions without blobs.
    #[must_use]
    pub const fn inline_bytes_max(mut self, bytes: u64) -> Self {
        self.inline_bytes_max = Some(bytes);
        self
    }

    /// The merge operator that [`Keyspace::merge`](crate::Keyspace::merge) applies to operands. The
    /// store records its `name`, and the operator must be given each time that the keyspace is
    /// opened. A different name is refused, because stored operands mean nothing to another
    /// operator. Names that begin with `esker.` are refused too: they are reserved for [`Merge`].
    /// If two operators are given under one name, the last one is used.
    ///
    /// If the operator is not given, reads of keys that need it fail
    /// ([`Error::Operator`](crate::Error::Operator)); the keys keep their operands.
    ///
    /// A store that has a keyspace with an operator is refused by versions without merge operators.
    #[must_use]
    pub fn merge_operator(
        mut self,
        name: impl Into<Arc<str>>,
        operator: impl MergeOperator + 'static,
    ) -> Self {
        let function = Arc::new(operator);
        self.merge = Some(Chosen { name: name.into(), function, is_own: false });
        self
    }

    /// The same as [`merge_operator`](Self::merge_operator) with one of the built-in operators,
    /// which need not be given again when the store is opened.
    #[must_use]
    pub fn merge(mut self, operator: Merge) -> Self {
        let name = operator.stored_name().into();
        self.merge = Some(Chosen { name, function: Arc::new(operator), is_own: true });
        self
    }

    pub(crate) fn validate(&self) -> Result<()> {
        self.merge.as_ref().map_or(Ok(()), Chosen::validate)?;
        if let Some(history) = self.history {
            History::validate_keyspace(self.index, self.merge.is_some())?;
            history.validate()?;
        }
        let is_kept_for_ever = self.history.is_none_or(|history| history == History::All);
        if !is_kept_for_ever && self.history_share == Some(Share::NEVER) {
            let what = "history that is not kept for ever has a history_share of 0.2 to 0.8";
            return Err(Error::invalid(what));
        }
        if !self.history_share.is_none_or(Share::is_valid) {
            return Err(Error::invalid("history_share is 0.2 to 0.8, or 1.0 for no copies"));
        }
        require_codec(self.compression.unwrap_or_default().codec(), "this keyspace")?;
        if let Some(bytes) = self.memtable_bytes {
            in_range("memtable_bytes", bytes, MEMTABLE_BYTES)?;
        }
        let inline = self.inline_bytes_max.unwrap_or_default();
        in_range("inline_bytes_max", inline, (0, VALUE_BYTES_MAX as u64))
    }
}

/// The default of [`DbBuilder::memory_budget`](crate::DbBuilder::memory_budget), in bytes.
pub const MEMORY_BUDGET_DEFAULT: u64 = 64 << 20;
/// The default of [`DbBuilder::log_segment_bytes`](crate::DbBuilder::log_segment_bytes), in bytes.
pub const LOG_SEGMENT_BYTES_DEFAULT: u64 = 4 << 20;

const MEMORY_BUDGET: (u64, u64) = (128 << 10, 1 << 44);
const LOG_SEGMENT_BYTES: (u64, u64) = (16 << 10, 1 << 30);
const MEMTABLE_BYTES: (u64, u64) = (1 << 10, 1 << 40);

/// The checked choices of a builder.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub create: bool,
    pub read_only: bool,
    pub follow: bool,
    pub refresh_every: Option<Duration>,
    pub memory_budget_bytes: u64,
    pub log_segment_bytes: u64,
    pub durability: Durability,
    pub mode: Mode,
    pub scheme: Scheme,
    pub sizes: Sizes,
    pub compaction: Compaction,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            create: true,
            read_only: false,
            follow: false,
            refresh_every: None,
            memory_budget_bytes: MEMORY_BUDGET_DEFAULT,
            log_segment_bytes: LOG_SEGMENT_BYTES_DEFAULT,
            durability: Durability::Buffered,
            mode: Mode::Threads,
            scheme: Scheme::Fc,
            sizes: Sizes::Cost,
            compaction: Compaction::default(),
        }
    }
}

impl Settings {
    pub fn validate(&self) -> Result<()> {
        self.compaction.check()?;
        in_range("memory_budget", self.memory_budget_bytes, MEMORY_BUDGET)?;
        in_range("log_segment_bytes", self.log_segment_bytes, LOG_SEGMENT_BYTES)
    }
}

/// Refuses a codec that this build does not have: its blocks could be neither read nor merged.
pub(crate) fn require_codec(codec: Codec, whose: impl fmt::Display) -> Result<()> {
    if codec.is_available() {
        return Ok(());
    }
    let name = codec.name();
    Err(Error::invalid(format!(
        "{whose} is compressed with {name}, which this build is without: build esker with its \
         feature {name}"
    )))
}

fn in_range(what: &str, value: u64, (least, most): (u64, u64)) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} must be {least} to {most} bytes, and not {value}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressions_have_names() {
        for one in Compression::ALL {
            assert_eq!(one.to_string().parse::<Compression>().unwrap(), one);
            assert_eq!(Compression::of(one.codec()), one);
        }
        let error = "snappy".parse::<Compression>().unwrap_err().to_string();
        assert!(error.contains("none, lz4 or zstd"), "{error}");
    }

    #[test]
    fn ranges_are_inclusive_and_enforced() {
        let settings = |memory_budget_bytes, log_segment_bytes| Settings {
            memory_budget_bytes,
            log_segment_bytes,
            ..Settings::default()
        };
        assert!(Settings::default().validate().is_ok());
        assert!(settings(128 << 10, 16 << 10).validate().is_ok());
        assert!(settings((128 << 10) - 1, 16 << 10).validate().is_err());
        assert!(settings(128 << 10, (16 << 10) - 1).validate().is_err());
        assert!(settings(128 << 10, (1 << 30) + 1).validate().is_err());
        assert!(KeyspaceOptions::default().memtable_bytes(Some(1023)).validate().is_err());
        assert!(KeyspaceOptions::default().memtable_bytes(Some(1024)).validate().is_ok());
    }
}
