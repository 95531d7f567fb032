//! Counts the words of text files and keeps the counts: run it again and they grow.
//!
//! `cargo run --release --example word_count -- STORE FILE...`

use std::collections::HashMap;
use std::error::Error;
use std::path::PathBuf;

use esker::{Db, KeyspaceOptions};

const SHOWN: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(store) = paths.next() else {
        return Err("usage: word_count STORE FILE...".into());
    };
    let db = Db::open(store)?;
    let counts = db.keyspace("counts", KeyspaceOptions::default())?;

    for path in paths {
        let text = std::fs::read_to_string(&path)?;
        // One batch a file: after a crash a file has been counted or it has not.
        let mut batch = db.batch();
        for (word, found) in words(&text) {
            let known = counts.get(&word)?.map_or(Ok(0), |bytes| decode(&bytes))?;
            batch.insert(&counts, word, (known + found).to_be_bytes());
        }
        println!("{}: {} different words", path.display(), batch.len());
        batch.commit()?;
    }

    let mut totals = Vec::new();
    for entry in counts.iter()? {
        let (word, count) = entry?;
        totals.push((decode(&count)?, String::from_utf8(word)?));
    }
    totals.sort_by(|a, b| b.cmp(a));
    for (count, word) in totals.iter().take(SHOWN) {
        println!("{count:>8} {word}");
    }
    db.close()?;
    Ok(())
}

fn words(text: &str) -> HashMap<String, u64> {
    let mut found = HashMap::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *found.entry(word.to_lowercase()).or_insert(0) += 1;
    }
    found
}

fn decode(bytes: &[u8]) -> Result<u64, std::array::TryFromSliceError> {
    Ok(u64::from_be_bytes(bytes.try_into()?))
}
