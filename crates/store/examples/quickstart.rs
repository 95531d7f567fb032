//! The whole API in a minute: `cargo run --example quickstart`.

use esker::{Db, Durability, KeyspaceOptions};

fn main() -> esker::Result<()> {
    let folder = std::env::temp_dir().join(format!("esker-quickstart-{}", std::process::id()));
    let db = Db::open(&folder)?;
    let cities = db.keyspace("cities", KeyspaceOptions::default())?;
    let rivers = db.keyspace("rivers", KeyspaceOptions::default())?;

    // Single writes; the second is on the device when it returns.
    cities.insert("oslo", "Norway")?;
    cities.insert_with("quito", "Ecuador", Durability::Synced)?;

    // A snapshot sees what was there when it was taken.
    let before = db.snapshot()?;

    // All of a batch happens or nothing, across keyspaces.
    let mut batch = db.batch();
    batch.insert(&cities, "porto", "Portugal");
    batch.insert(&rivers, "douro", "Portugal");
    batch.remove(&cities, "oslo");
    batch.commit()?;

    for entry in cities.range("p"..)? {
        let (city, country) = entry?;
        println!("{} in {}", String::from_utf8_lossy(&city), String::from_utf8_lossy(&country));
    }
    println!("oslo is there now: {}", cities.contains("oslo")?);
    println!("oslo was there before: {}", before.contains(&cities, "oslo")?);

    // Closing makes everything durable; whatever a crash interrupts, the next opening recovers.
    db.close()?;
    let db = Db::builder(&folder).create(false).open()?;
    println!("keyspaces: {}", db.keyspaces()?.join(", "));
    println!("sound: {}", db.check()?.is_ok());
    db.close()?;

    // Only the example's own folder is cleaned up.
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}
