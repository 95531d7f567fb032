use std::collections::BTreeMap;

use super::requests::MIX;
use super::rows::{LINK_PAYLOAD, NODE_PAYLOAD};
use super::*;
use crate::row::Row;

const IDS: u64 = 20_000;

/// Applies writes to a map, as a store would.
fn apply(rows: &mut BTreeMap<Vec<u8>, Vec<u8>>, row: Row) {
    match row {
        Row::Put { key, value } => {
            rows.insert(key, value);
        }
        Row::Delete { key } => {
            rows.remove(&key);
        }
        Row::Get { .. } | Row::Scan { .. } => {}
    }
}

fn loaded(graph: &Graph) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = BTreeMap::new();
    graph.rows().for_each(|row| apply(&mut rows, row));
    rows
}

#[test]
fn the_load_is_in_the_order_of_keys() {
    let graph = Graph::new(1, 2_000);
    let keys = graph.rows().filter_map(|row| match row {
        Row::Put { key, .. } => Some(key),
        _ => None,
    });
    let keys = keys.collect::<Vec<_>>();
    assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
    let links: u64 = (1..=2_000).map(|id| graph.degree(id)).sum();
    let counts = (1..=2_000u64).flat_map(|id| [(id, 0), (id, 1)]);
    let counts = counts.filter(|(id, kind)| graph.count(*id, *kind) > 0).count() as u64;
    assert_eq!(keys.len() as u64, 2 * links + counts + 2_000);
}

#[test]
fn the_mix_is_that_of_linkbench() {
    const COUNT: u64 = 200_000;
    let mut seen = BTreeMap::new();
    for request in Requests::new(3, Graph::new(1, IDS)).take(COUNT as usize) {
        *seen.entry(request.kind).or_insert(0u64) += 1;
    }
    assert_eq!(MIX.iter().map(|(_, share)| share).sum::<u64>(), 1_000_001);
    for (kind, share) in MIX {
        let (found, expected) = (seen[&kind] as f64, share as f64 / 1e6 * COUNT as f64);
        // Four standard deviations.
        assert!((found - expected).abs() < 4.0 * expected.sqrt(), "{kind:?}: {found} {expected}");
    }
}

#[test]
fn payloads_have_their_medians() {
    let median = |mut lengths: Vec<usize>| {
        lengths.sort_unstable();
        lengths[lengths.len() / 2] as f64
    };
    let lengths = |table: u8, head: usize| {
        let graph = Graph::new(1, IDS);
        let of_table = graph.rows().filter_map(move |row| match row {
            Row::Put { key, value } if key[3] == table => Some(value.len() - head),
            _ => None,
        });
        median(of_table.collect())
    };
    assert!((lengths(1, 13) - LINK_PAYLOAD.0).abs() <= 1.0);
    assert!((lengths(4, 16) - NODE_PAYLOAD.0).abs() <= 3.0);
}

/// Every link has one entry in the index, the one with its time and visibility, and counts are the
/// numbers of links that are shown.
#[test]
fn link_index_and_count_agree_after_any_requests() {
    let graph = Graph::new(5, 500);
    let mut rows = loaded(&graph);
    let mut hidden = 0;
    for request in Requests::new(7, graph).take(20_000) {
        request.rows.into_iter().for_each(|row| apply(&mut rows, row));
    }
    let (mut entries, mut counts) = (BTreeMap::new(), BTreeMap::new());
    for (key, value) in rows.range(vec![0, 0, 0, 1]..vec![0, 0, 0, 2]) {
        let (kind, id1, id2) = (&key[4..12], &key[12..20], &key[20..28]);
        let mut entry = vec![0, 0, 0, 2];
        for part in [id1, kind, &value[..1], &value[1..9], id2] {
            entry.extend_from_slice(part);
        }
        *counts.entry([id1, kind].concat()).or_insert(0u64) += u64::from(value[0]);
        hidden += u64::from(value[0] == 0);
        entries.insert(entry, value[13..].to_vec());
    }
    let found = rows.range(vec![0, 0, 0, 2]..vec![0, 0, 0, 3]);
    let found = found.map(|(key, value)| (key.clone(), value[4..].to_vec()));
    assert!(found.collect::<BTreeMap<_, _>>() == entries, "the index differs");
    for (key, value) in rows.range(vec![0, 0, 0, 3]..vec![0, 0, 0, 4]) {
        let count = u64::from_be_bytes(value[..8].try_into().unwrap());
        assert_eq!(counts.get(&key[4..]).copied().unwrap_or(0), count);
    }
    assert!(hidden > 100, "{hidden}");
}

#[test]
fn asked_for_links_are_there_as_often_as_linkbench_says() {
    let graph = Graph::new(5, IDS);
    let mut rows = loaded(&graph);
    let (mut updates, mut existed, mut lists) = (0.0, 0.0, 0);
    for request in Requests::new(7, graph).take(60_000) {
        if let (Kind::UpdateLink, [Row::Get { key }, ..]) = (request.kind, &request.rows[..]) {
            updates += 1.0;
            existed += f64::from(u8::from(rows.contains_key(key)));
        }
        lists += usize::from(matches!(request.rows[..], [Row::Scan { most: 10_000, .. }]));
        request.rows.into_iter().for_each(|row| apply(&mut rows, row));
    }
    // Nine tenths are to exist; half of the ids have no link at first.
    assert!((0.5..0.9).contains(&(existed / updates)), "{}", existed / updates);
    assert!(lists > 25_000);
}

#[test]
fn requests_follow_from_the_seed() {
    let requests = |seed| Requests::new(seed, Graph::new(1, 1_000)).take(500).collect::<Vec<_>>();
    assert_eq!(requests(1), requests(1));
    assert_ne!(requests(1), requests(2));
}
