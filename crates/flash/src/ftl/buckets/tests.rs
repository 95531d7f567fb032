use super::*;
use std::collections::BTreeMap;

#[test]
fn random_changes_agree_with_a_sorted_list() {
    let random = esker_harness::random::Random::new(11);
    let (blocks, pages) = (40_u32, 6);
    let mut buckets = Buckets::new(2, blocks, pages);
    // Block to (valid, when it came to that number).
    let mut model: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    for at in 0..20_000_u64 {
        let block = random.below(blocks.into()) as u32;
        let domain = block / 20;
        match model.get(&block).copied() {
            None => {
                let valid = random.below(u64::from(pages) + 1) as u32;
                buckets.add(domain, valid, block);
                model.insert(block, (valid, at));
            }
            Some((valid, _)) => {
                buckets.remove(domain, valid, block);
                model.remove(&block);
                if valid > 0 && random.percent(60) {
                    buckets.add(domain, valid - 1, block);
                    model.insert(block, (valid - 1, at));
                }
            }
        }
        for domain in 0..2 {
            let here = model.iter().filter(|(block, _)| **block / 20 == domain);
            let least = here.min_by_key(|(_, state)| **state).map(|(b, s)| (*b, s.0));
            assert_eq!(buckets.least(domain), least, "after {at}");
        }
    }
}
