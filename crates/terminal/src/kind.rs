//! The argument that chooses the kind of an index.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use esker::{IndexKind, KeyspaceOptions};

/// The kind of index of a keyspace, as an option of a command.
#[derive(Debug, Args)]
pub struct Kind {
    /// Index kind of a new keyspace; an existing one must have this kind [default: fdtree, or the
    /// existing kind]
    #[arg(long, value_name = "KIND", value_parser = index_kind())]
    pub index: Option<IndexKind>,
}

impl Kind {
    /// The options with which a keyspace is opened.
    #[must_use]
    pub fn options(&self) -> KeyspaceOptions {
        match self.index {
            None => KeyspaceOptions::default(),
            Some(kind) => KeyspaceOptions::default().index(kind),
        }
    }
}

/// The kinds by their names, which help and completions show.
#[must_use]
pub fn index_kind() -> impl TypedValueParser<Value = IndexKind> {
    PossibleValuesParser::new(IndexKind::ALL.map(IndexKind::name))
        .try_map(|name| name.parse::<IndexKind>())
}
