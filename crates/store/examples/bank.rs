//! Money that moves between accounts, and never appears or disappears, whatever others move.
//!
//! `cargo run --example bank`

use std::fmt;

use esker::{Db, Keyspace, KeyspaceOptions, Transaction};

/// The reason why money was not moved.
#[derive(Debug)]
enum Refused {
    /// The account does not have enough money.
    Poor { has: u64 },
    /// An error of the store.
    Store(esker::Error),
}

impl From<esker::Error> for Refused {
    fn from(error: esker::Error) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poor { has } => write!(f, "there are only {has}"),
            Self::Store(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Refused {}

fn balance(tx: &Transaction, accounts: &Keyspace, name: &str) -> esker::Result<u64> {
    let bytes = tx.get(accounts, name)?.and_then(|value| value.try_into().ok());
    Ok(bytes.map_or(0, u64::from_be_bytes))
}

/// Moves an amount, if it is there. The body runs again when somebody else has written one of the
/// two accounts in between; an error of its own rolls back.
fn transfer(db: &Db, accounts: &Keyspace, from: &str, to: &str, sum: u64) -> Result<(), Refused> {
    db.transact(|tx| {
        let has = balance(tx, accounts, from)?;
        let left = has.checked_sub(sum).ok_or(Refused::Poor { has })?;
        tx.insert(accounts, from, left.to_be_bytes())?;
        let other = balance(tx, accounts, to)?;
        tx.insert(accounts, to, (other + sum).to_be_bytes())?;
        Ok(())
    })
}

/// The sum of all accounts, as of one moment.
fn total(db: &Db, accounts: &Keyspace) -> esker::Result<u64> {
    let tx = db.transaction()?;
    let mut total = 0;
    for entry in tx.iter(accounts)? {
        let (_, value) = entry?;
        total += value.try_into().map_or(0, u64::from_be_bytes);
    }
    Ok(total)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("esker-bank-{}", std::process::id()));
    let db = Db::open(&folder)?;
    let accounts = db.keyspace("accounts", KeyspaceOptions::default())?;
    let names = ["ada", "alan", "grace", "edsger"];
    for name in names {
        accounts.insert(name, 100_u64.to_be_bytes())?;
    }

    std::thread::scope(|scope| {
        for (at, from) in names.iter().enumerate() {
            let (db, accounts, to) = (&db, &accounts, names[(at + 1) % names.len()]);
            scope.spawn(move || {
                for sum in 1..=50 {
                    // Who is poor waits for better times.
                    if let Err(Refused::Store(error)) = transfer(db, accounts, from, to, sum % 7) {
                        eprintln!("{error}");
                    }
                }
            });
        }
    });

    println!("{} in all, after {} conflicts", total(&db, &accounts)?, {
        db.stats()?.transactions.conflicts
    });
    if let Err(refused) = transfer(&db, &accounts, "ada", "alan", 1_000_000) {
        println!("a million from ada to alan: {refused}");
    }
    db.close()?;
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}
