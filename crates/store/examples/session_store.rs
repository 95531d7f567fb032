//! Sessions that expire: two keyspaces kept in step by batches, one of them an index by time.
//!
//! `cargo run --example session_store`

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker::{Db, Durability, Keyspace, KeyspaceOptions, Result};

/// Sessions by their token, and tokens by the moment when they expire.
struct Sessions {
    db: Db,
    by_token: Keyspace,
    by_expiry: Keyspace,
}

impl Sessions {
    fn open(db: Db) -> Result<Self> {
        let by_token = db.keyspace("sessions", KeyspaceOptions::default())?;
        let by_expiry = db.keyspace("sessions by expiry", KeyspaceOptions::default())?;
        Ok(Self { db, by_token, by_expiry })
    }

    /// Begins a session. It is on the device when this returns: a user who has got it
    /// is not logged out by a power cut.
    fn begin(&self, token: &str, user: &str, expires: Duration) -> Result<()> {
        let mut batch = self.db.batch();
        batch.insert(&self.by_token, token, user);
        batch.insert(&self.by_expiry, expiry_key(expires, token), "");
        batch.commit_with(Durability::Synced)?;
        Ok(())
    }

    fn user(&self, token: &str) -> Result<Option<String>> {
        let user = self.by_token.get(token)?;
        Ok(user.map(|user| String::from_utf8_lossy(&user).into_owned()))
    }

    /// Ends all sessions that expire before `now`; says how many. Losing this in a crash is
    /// harmless, so nothing waits for the device.
    fn expire(&self, now: Duration) -> Result<usize> {
        let mut batch = self.db.batch();
        for entry in self.by_expiry.range(..expiry_key(now, ""))? {
            let (key, _) = entry?;
            if let Some(token) = key.get(size_of::<u64>()..) {
                batch.remove(&self.by_token, token);
            }
            batch.remove(&self.by_expiry, key);
        }
        let ended = batch.len() / 2;
        batch.commit()?;
        Ok(ended)
    }
}

/// Big-endian seconds, so that the order of keys is the order of time.
fn expiry_key(at: Duration, token: &str) -> Vec<u8> {
    [&at.as_secs().to_be_bytes(), token.as_bytes()].concat()
}

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("esker-sessions-{}", std::process::id()));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let sessions = Sessions::open(Db::open(&folder)?)?;

    sessions.begin("t-1", "ada", now + Duration::from_secs(60))?;
    sessions.begin("t-2", "alan", now + Duration::from_secs(3600))?;
    println!("t-1 belongs to {:?}", sessions.user("t-1")?);

    let ended = sessions.expire(now + Duration::from_secs(600))?;
    println!("{ended} expired; t-1: {:?}, t-2: {:?}", sessions.user("t-1")?, sessions.user("t-2")?);

    drop(sessions);
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}
