use super::*;

/// The same with lists that are searched: newest first.
#[derive(Default)]
struct Slow {
    probationary: Vec<u32>,
    protected: Vec<u32>,
}

impl Slow {
    fn touch(&mut self, lpn: u32, capacity: usize) -> bool {
        let before = self.probationary.len() + self.protected.len();
        self.probationary.retain(|other| *other != lpn);
        self.protected.retain(|other| *other != lpn);
        if self.probationary.len() + self.protected.len() == before {
            return false;
        }
        self.protected.insert(0, lpn);
        if self.protected.len() > (capacity / 2).max(1) {
            let oldest = self.protected.pop().unwrap();
            self.probationary.insert(0, oldest);
        }
        true
    }

    fn insert(&mut self, lpn: u32, capacity: usize) -> Option<u32> {
        let is_full = self.probationary.len() + self.protected.len() == capacity;
        let evicted =
            if is_full { self.probationary.pop().or_else(|| self.protected.pop()) } else { None };
        self.probationary.insert(0, lpn);
        evicted
    }
}

#[test]
fn random_uses_agree_with_lists() {
    let random = esker_harness::random::Random::new(3);
    for capacity in [1, 2, 3, 8, 20] {
        let (mut cache, mut slow) = (Cache::new(capacity), Slow::default());
        for _ in 0..5_000 {
            let lpn = random.below(30) as u32;
            let is_hit = cache.touch(lpn);
            assert_eq!(is_hit, slow.touch(lpn, capacity as usize));
            if !is_hit {
                assert_eq!(cache.insert(lpn), slow.insert(lpn, capacity as usize));
            }
            assert!(cache.contains(lpn) && cache.len() <= capacity);
        }
    }
}

#[test]
fn what_is_used_twice_survives_a_scan() {
    let mut cache = Cache::new(8);
    (0..4).for_each(|lpn| assert_eq!(cache.insert(lpn), None));
    (0..4).for_each(|lpn| assert!(cache.touch(lpn)));
    for lpn in 100..200 {
        cache.insert(lpn);
    }
    assert!((0..4).all(|lpn| cache.contains(lpn)));
}
