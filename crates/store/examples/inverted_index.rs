//! Documents that are found by their words: postings next to texts, changed together.
//!
//! `cargo run --example inverted_index`

use std::collections::{BTreeMap, BTreeSet};

use esker::{Db, Keyspace, KeyspaceOptions, Result, Transaction};

/// Texts by their names, and for each word the names of the texts that have it.
struct Index {
    db: Db,
    texts: Keyspace,
    /// A key is a word, a zero byte and a name; the value is how often. All texts with a word are
    /// thus one range, and a text changes only the postings of its own words.
    postings: Keyspace,
}

impl Index {
    fn open(db: Db) -> Result<Self> {
        let texts = db.keyspace("texts", KeyspaceOptions::default())?;
        let postings = db.keyspace("postings", KeyspaceOptions::default())?;
        Ok(Self { db, texts, postings })
    }

    /// Adds a text, or replaces the one of that name. A search never finds it by old words and
    /// new ones at once, nor after a crash.
    fn put(&self, name: &str, text: &str) -> Result<()> {
        self.db.transact(|tx| {
            self.forget(tx, name)?;
            for (word, count) in words(text) {
                tx.insert(&self.postings, posting(&word, name), count.to_be_bytes())?;
            }
            tx.insert(&self.texts, name, text)
        })
    }

    /// Removes a text.
    fn remove(&self, name: &str) -> Result<()> {
        self.db.transact(|tx| {
            self.forget(tx, name)?;
            tx.remove(&self.texts, name)
        })
    }

    fn forget(&self, tx: &mut Transaction, name: &str) -> Result<()> {
        let Some(old) = tx.get(&self.texts, name)? else { return Ok(()) };
        for word in words(&String::from_utf8_lossy(&old)).into_keys() {
            tx.remove(&self.postings, posting(&word, name))?;
        }
        Ok(())
    }

    /// The texts that have all of these words, those that have them most often first.
    fn search(&self, wanted: &[&str]) -> Result<Vec<(String, u32)>> {
        // One snapshot: all words are looked up at the same moment.
        let snapshot = self.db.snapshot()?;
        let mut found: Option<BTreeMap<String, u32>> = None;
        for word in wanted {
            let mut of_word = BTreeMap::new();
            for entry in snapshot.prefix(&self.postings, posting(word, ""))? {
                let (key, count) = entry?;
                let name = key.get(word.len() + 1..).unwrap_or_default();
                let count = count.try_into().map_or(0, u32::from_be_bytes);
                of_word.insert(String::from_utf8_lossy(name).into_owned(), count);
            }
            found = Some(match found {
                None => of_word,
                Some(found) => meet(&found, &of_word),
            });
        }
        let mut found: Vec<_> = found.unwrap_or_default().into_iter().collect();
        found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Ok(found)
    }

    /// The words that begin with `start`: a step in the keys for each, however many texts have it.
    fn complete(&self, start: &str) -> Result<BTreeSet<String>> {
        let (mut words, mut from) = (BTreeSet::new(), start.as_bytes().to_vec());
        while let Some((key, _)) = self.postings.range(from..)?.next().transpose()? {
            let word = key.split(|byte| *byte == 0).next().unwrap_or_default();
            if !word.starts_with(start.as_bytes()) {
                break;
            }
            words.insert(String::from_utf8_lossy(word).into_owned());
            from = [word, &[1]].concat();
        }
        Ok(words)
    }
}

fn posting(word: &str, name: &str) -> String {
    format!("{word}\0{name}")
}

/// The words of a text, and how often each is there.
fn words(text: &str) -> BTreeMap<String, u32> {
    let mut words = BTreeMap::new();
    for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
    {
        *words.entry(word.to_lowercase()).or_default() += 1;
    }
    words
}

fn meet(one: &BTreeMap<String, u32>, other: &BTreeMap<String, u32>) -> BTreeMap<String, u32> {
    let both = one.iter().filter_map(|(name, count)| Some((name, count + other.get(name)?)));
    both.map(|(name, count)| (name.clone(), count)).collect()
}

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("esker-index-{}", std::process::id()));
    let index = Index::open(Db::open(&folder)?)?;

    index.put("trees", "A tree of levels: each level is written in one sweep, never in place.")?;
    index.put("logs", "A log is written in one place, its end.")?;
    index.put("arrays", "An array is read in one order and written in another.")?;
    println!("written, one: {:?}", index.search(&["written", "one"])?);
    println!("written, place: {:?}", index.search(&["written", "place"])?);

    index.put("logs", "A log only grows.")?;
    index.remove("arrays")?;
    println!("written: {:?}", index.search(&["written"])?);
    println!("le…: {:?}", index.complete("le")?);

    drop(index);
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}
