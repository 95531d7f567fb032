//! One run: what the parent asks of a child, and what the child says meanwhile.

use std::path::PathBuf;

use esker::Compaction;
use esker_lab_result::Metrics;
use esker_peers::{Arrangement, Name};
use serde_json::{Value, json};

use crate::stores::media::Media;
use crate::stores::rows::Row;
use crate::stores::sizes::Scale;
use crate::{Error, Result};

/// One run of one row with one system.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The row that is measured.
    pub row: Row,
    /// Which store.
    pub system: Name,
    /// The kind of index and the policy of Esker's keyspace.
    pub arrangement: Arrangement,
    /// The simulated SSD on which Esker's files are, if any.
    pub media: Option<Media>,
    /// The scale, from which the sizes follow.
    pub scale: Scale,
    /// The store's folder: loaded before, except for the rows that load it.
    pub folder: PathBuf,
    /// Seed of the requests.
    pub seed: u64,
    /// Writes a second where they come when they come.
    pub rate: f64,
    /// Folder of the control group to enter.
    pub group: Option<PathBuf>,
    /// Whether this run is the one that gets killed, before the one that measures.
    pub crash: bool,
}

impl Task {
    /// As one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        json!({
            "row": self.row.as_str(),
            "system": self.system.as_str(),
            "index": self.arrangement.index.name(),
            "policy": self.arrangement.policy.name(),
            "media": self.media.as_ref().map(Media::to_json),
            "scale": self.scale.as_str(),
            "folder": self.folder.to_string_lossy(),
            "seed": self.seed,
            "rate": self.rate,
            "group": self.group.as_ref().map(|group| group.to_string_lossy()),
            "crash": self.crash,
        })
        .to_string()
    }

    /// Reads the text that [`to_json`](Self::to_json) made.
    ///
    /// # Errors
    /// [`Error::Input`] for anything else.
    pub fn from_json(text: &str) -> Result<Self> {
        let unusable = || Error::Input("the task of this run cannot be read".to_owned());
        let value: Value = serde_json::from_str(text).map_err(|_| unusable())?;
        let word = |field: &str| value.get(field).and_then(Value::as_str);
        let read = || {
            Some(Self {
                row: Row::parse(word("row")?)?,
                system: Name::parse(word("system")?)?,
                arrangement: Arrangement {
                    index: word("index")?.parse().ok()?,
                    policy: word("policy")?.parse::<Compaction>().ok()?.policy(),
                },
                media: match value.get("media")? {
                    Value::Null => None,
                    media => Some(Media::from_json(media)?),
                },
                scale: Scale::parse(word("scale")?)?,
                folder: PathBuf::from(word("folder")?),
                seed: value.get("seed")?.as_u64()?,
                rate: value.get("rate")?.as_f64()?,
                group: word("group").map(PathBuf::from),
                crash: value.get("crash")?.as_bool()?,
            })
        };
        read().ok_or_else(unusable)
    }
}

/// The messages of a child, a line each.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// So much of so much is done.
    Progress {
        /// Requests done.
        done: u64,
        /// Requests in all.
        total: u64,
    },
    /// It may be killed now.
    Ready,
    /// The measurements; nothing comes after.
    Metrics(Metrics),
    /// The reason for which nothing was measured; nothing comes after.
    Failed(String),
}

impl Message {
    /// As one line, without a line feed.
    #[must_use]
    pub fn to_json(&self) -> String {
        match self {
            Self::Progress { done, total } => json!({ "progress": [done, total] }),
            Self::Ready => json!({ "ready": true }),
            Self::Metrics(metrics) => json!({ "metrics": metrics }),
            Self::Failed(why) => json!({ "failed": why }),
        }
        .to_string()
    }

    /// Reads the text that [`to_json`](Self::to_json) made; `None` for anything else.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        if let Some(progress) = value.get("progress") {
            let (done, total) = (progress.get(0)?.as_u64()?, progress.get(1)?.as_u64()?);
            return Some(Self::Progress { done, total });
        }
        if value.get("ready").is_some() {
            return Some(Self::Ready);
        }
        if let Some(why) = value.get("failed") {
            return Some(Self::Failed(why.as_str()?.to_owned()));
        }
        let metrics = value.get("metrics")?.as_object()?.iter();
        let numbers = metrics.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
        Some(Self::Metrics(numbers.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker::{CompactionPolicy, IndexKind};

    #[test]
    fn a_task_is_read_back() {
        let task = Task {
            row: Row::Merge,
            system: Name::Fjall,
            arrangement: Arrangement { index: IndexKind::Lsm, policy: CompactionPolicy::Mixed },
            media: Some(Media::of("nand:femu", &[("op", "14")]).unwrap()),
            scale: Scale::Small,
            folder: "/a b/\"c\"".into(),
            seed: u64::MAX,
            rate: 70_000.5,
            group: Some("/g".into()),
            crash: false,
        };
        assert_eq!(Task::from_json(&task.to_json()).unwrap(), task);
        let bare = Task { group: None, media: None, crash: true, ..task };
        assert_eq!(Task::from_json(&bare.to_json()).unwrap(), bare);
        for text in ["", "{}", "[1]", "{\"row\":\"merge\"}"] {
            assert!(Task::from_json(text).is_err());
        }
    }

    #[test]
    fn a_message_is_read_back() {
        let metrics = Metrics::from([("a_us".to_owned(), 1.5), ("n".to_owned(), 3.0)]);
        for message in [
            Message::Progress { done: 3, total: 9 },
            Message::Ready,
            Message::Metrics(metrics),
            Message::Failed("so\nand so".to_owned()),
        ] {
            let line = message.to_json();
            assert!(!line.contains('\n'));
            assert_eq!(Message::from_json(&line), Some(message));
        }
        assert_eq!(Message::from_json("noise"), None);
        assert_eq!(Message::from_json("{\"progress\":[1]}"), None);
    }
}
