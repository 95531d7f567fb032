//! Events that the store emits through `tracing`, in a process whose one listener exists before
//! anything else: each place that emits events remembers whether there is a listener.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use esker::{Db, KeyspaceOptions};

/// Keeps the names of spans.
#[derive(Clone, Debug, Default)]
struct Names(Arc<Mutex<Vec<&'static str>>>);

impl tracing::Subscriber for Names {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("esker")
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut names = self.0.lock().unwrap();
        names.push(span.metadata().name());
        tracing::span::Id::from_u64(names.len() as u64)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn what_is_done_is_traced() {
    let folder = tempfile::tempdir().unwrap();
    let names = Names::default();
    tracing::subscriber::set_global_default(names.clone()).unwrap();
    let db = Db::open(folder.path().join("store")).unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    keyspace.insert("a", "1").unwrap();
    keyspace.flush().unwrap();
    keyspace.compact().unwrap();
    db.backup(folder.path().join("copy")).unwrap();
    // The store's own threads may have been quicker, or not.
    let names = names.0.lock().unwrap();
    let asked: Vec<_> = names.iter().filter(|name| **name != "maintenance").collect();
    assert_eq!(asked, [&"open", &"flush", &"compact", &"backup"]);
}
