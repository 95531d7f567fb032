use std::sync::Arc;
use std::sync::Barrier;

use super::*;

struct Text;
struct Number;
struct OtherNumber;

handle!(Text(String) = b"test-txt");
handle!(Number(u64) = b"test-num");
handle!(OtherNumber(u64) = b"test-oth");

/// A copy of the text that `get` returns.
fn text(handle: *const Text) -> Option<String> {
    // SAFETY: each test uses its handles in one thread.
    unsafe { get(handle) }.ok().cloned()
}

#[test]
fn places_follow_each_other_through_the_chunks() {
    let places: Vec<_> = [0, 63, 64, 191, 192].map(chunk_of).to_vec();
    assert_eq!(places, [(0, 0), (0, 63), (1, 0), (1, 127), (2, 0)]);
}

#[test]
fn a_released_handle_is_never_another_one() {
    let mut stale = Vec::new();
    // Of the same size: an allocator would give the same memory again.
    for number in 0..5_000 {
        let handle = give::<Text>(format!("{number:05}"));
        assert_eq!(text(handle).as_deref(), Some(&*format!("{number:05}")));
        assert!(!stale.contains(&handle), "{number}");
        // SAFETY: no thread uses it.
        unsafe { free(handle) };
        stale.push(handle);
        assert!(stale.iter().rev().take(50).all(|handle| text(*handle).is_none()), "{number}");
    }
    let alive = give::<Text>("alive".into());
    for handle in stale {
        assert_eq!(text(handle), None);
        // SAFETY: there is no value, so no code uses it.
        assert!(unsafe { take(handle) }.is_err());
    }
    assert_eq!(text(alive).as_deref(), Some("alive"));
    // SAFETY: it is no longer in use.
    assert_eq!(unsafe { take(alive) }.ok().as_deref(), Some("alive"));
}

#[test]
fn other_kinds_and_other_pointers_are_refused() {
    let handle = give::<Text>("text".into());
    let local = 7_u64;
    let foreign: [*const Text; 6] = [
        ptr::null(),
        (&raw const local).cast(),
        // Memory that cannot be read.
        ptr::without_provenance(16),
        ptr::without_provenance(usize::MAX),
        handle.wrapping_byte_add(1),
        handle.wrapping_byte_sub(1),
    ];
    for pointer in foreign {
        assert!(text(pointer).is_none_or(|found| found != "text"), "{pointer:?}");
    }
    // SAFETY: no other code uses it.
    unsafe {
        assert!(get(handle.cast_const().cast::<Number>()).is_err());
        assert!(get_mut(handle.cast::<Number>()).is_err());
        assert!(take(handle.cast::<Number>()).is_err());
        get_mut(handle).unwrap().push('s');
        assert_eq!(take(handle).ok().as_deref(), Some("texts"));
    }
}

/// A suite that cannot fail proves nothing.
#[test]
fn handles_that_are_taken_for_others_are_found() {
    let stale = a_released_handle_is_never_another_one;
    assert!(planted::is_found(Bug::GenerationIgnored, stale));
    // Both are a word, so that one read as the other harms nothing.
    let other_kind = || {
        let handle = give::<Number>(7);
        // SAFETY: no thread uses it.
        let taken = unsafe { take(handle.cast::<OtherNumber>()) };
        assert!(taken.is_err());
    };
    assert!(planted::is_found(Bug::KindIgnored, other_kind));
    other_kind();
}

#[test]
fn of_threads_that_give_one_handle_up_one_has_it() {
    for round in 0..200_u64 {
        let address = give::<Number>(round).expose_provenance();
        let barrier = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let barrier = Arc::clone(&barrier);
                std::thread::spawn(move || {
                    barrier.wait();
                    let handle = ptr::without_provenance_mut::<Number>(address);
                    // SAFETY: no code uses the value.
                    unsafe { take(handle) }.ok()
                })
            })
            .collect();
        let taken: Vec<_> = threads.into_iter().filter_map(|t| t.join().unwrap()).collect();
        assert_eq!(taken, [round]);
    }
}
