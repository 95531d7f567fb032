use std::collections::BTreeMap;

use super::*;
use crate::row::Row;
use crate::tpcc::{DISTRICTS, Kind, Sizes};

const SIZES: Sizes = Sizes { warehouses: 2, items: 500, customers: 60 };

fn apply(rows: &mut BTreeMap<Vec<u8>, Vec<u8>>, row: &Row) {
    match row {
        Row::Put { key, value } => {
            rows.insert(key.clone(), value.clone());
        }
        Row::Delete { key } => {
            assert!(rows.remove(key).is_some(), "nothing to remove");
        }
        Row::Get { .. } | Row::Scan { .. } => {}
    }
}

fn count(all: &BTreeMap<Vec<u8>, Vec<u8>>, table: u8) -> usize {
    all.range(vec![0, 0, 0, table]..vec![0, 0, 0, table + 1]).count()
}

#[test]
fn the_load_is_in_the_order_of_keys_and_has_the_rows_of_the_specification() {
    let all: Vec<_> = rows(SIZES).collect();
    let keys = all.iter().map(|row| match row {
        Row::Put { key, .. } => key.clone(),
        _ => Vec::new(),
    });
    assert!(keys.collect::<Vec<_>>().windows(2).all(|pair| pair[0] < pair[1]));
    let mut map = BTreeMap::new();
    all.iter().for_each(|row| apply(&mut map, row));
    let counts: Vec<_> = (1..=11).map(|table| count(&map, table)).collect();
    let (districts, lines) = (20, counts[7]);
    let customers = districts * 60;
    let waiting = districts * 18;
    assert_eq!(
        counts,
        [2, 20, customers, 500, 1000, customers, waiting, lines, customers, customers, customers]
    );
    assert!((9 * customers..11 * customers).contains(&lines), "{lines}");
}

/// The numbers of rows stay in step with each other: each order has its entry in the index and as
/// many lines as it had when it was entered, and what waits are the orders not yet delivered.
#[test]
fn tables_agree_after_any_transactions() {
    let mut map = BTreeMap::new();
    rows(SIZES).for_each(|row| apply(&mut map, &row));
    let before: Vec<_> = (1..=11).map(|table| count(&map, table)).collect();
    let (mut orders, mut lines, mut payments, mut delivered) = (0, 0, 0, 0);
    for transaction in Transactions::new(3, SIZES).take(4_000) {
        let is_of = |row: &&Row, table: u8| matches!(row, Row::Put { key, .. } if key[3] == table);
        let puts = |table| transaction.rows.iter().filter(|row| is_of(row, table)).count();
        match transaction.kind {
            Kind::NewOrder => {
                orders += usize::from(transaction.commits);
                lines += puts(8);
            }
            Kind::Payment => payments += puts(9),
            Kind::Delivery => delivered += puts(6),
            Kind::OrderStatus | Kind::StockLevel => {
                assert!(!transaction.rows.iter().any(Row::writes));
            }
        }
        transaction.rows.iter().for_each(|row| apply(&mut map, row));
    }
    let now: Vec<_> = (1..=11).map(|table| count(&map, table)).collect();
    assert_eq!(now[5] - before[5], orders);
    assert_eq!(now[10] - before[10], orders);
    assert_eq!(now[7] - before[7], lines);
    assert_eq!(now[8] - before[8], payments);
    assert_eq!(now[6] + delivered, before[6] + orders);
    assert!(orders > 1_500 && delivered > 500, "{orders} {delivered}");
    for table in [0, 1, 2, 3, 4, 9] {
        assert_eq!(now[table], before[table], "table {}", table + 1);
    }
}

/// An average New-Order brings ten lines of 54 bytes and writes ten rows of stock of 306.
#[test]
fn a_new_order_has_the_bytes_of_its_rows() {
    let (mut bytes, mut orders, mut reads) = (0, 0, 0);
    for transaction in Transactions::new(5, SIZES).take(4_000) {
        if transaction.kind == Kind::NewOrder && transaction.commits {
            bytes += transaction.rows.iter().map(Row::bytes_written).sum::<u64>();
            reads += transaction.rows.iter().filter(|row| !row.writes()).count();
            orders += 1;
        }
    }
    let (mean, reads) = (bytes as f64 / orders as f64, reads as f64 / orders as f64);
    // With keys of 8 to 20 bytes, of which 4 are the table's number.
    assert!((3_700.0..4_100.0).contains(&mean), "{mean}");
    assert!((22.0..24.0).contains(&reads), "{reads}");
}

#[test]
fn transactions_follow_from_the_seed_and_have_their_shares() {
    let all = |seed| Transactions::new(seed, SIZES).take(2_000).collect::<Vec<_>>();
    assert_eq!(all(1), all(1));
    assert_ne!(all(1), all(2));
    let shares = [45.0, 43.0, 4.0, 4.0, 4.0];
    for (kind, share) in Kind::ALL.into_iter().zip(shares) {
        let found = all(1).iter().filter(|transaction| transaction.kind == kind).count();
        assert!((found as f64 / 20.0 - share).abs() < 4.0, "{kind:?}: {found}");
    }
    assert_eq!(DISTRICTS, 10);
}
