use super::*;
use crate::nand::geometry::Sizes;

const TIMING: Timing = Timing {
    read_ns: 50,
    program_ns: 700,
    erase_ns: 3_000,
    transfer_ns_per_page: 25,
    copy_back: true,
    endurance: 1,
};

fn clock(channels: u32, dies_per_channel: u32) -> Clock {
    let sizes = Sizes {
        channels,
        dies_per_channel,
        planes_per_die: 1,
        blocks_per_plane: 4,
        pages_per_block: 4,
        page_size: 512,
    };
    Clock::new(&Geometry::new(sizes).unwrap(), TIMING)
}

#[test]
fn single_operations_take_their_time() {
    let mut clock = clock(1, 1);
    clock.issue_at(1_000);
    clock.read(0, 0);
    assert_eq!(clock.end_ns(), 1_075);
    clock.issue_at(10_000);
    clock.program(0, 0);
    assert_eq!(clock.end_ns(), 10_725);
    clock.issue_at(20_000);
    clock.erase(0);
    assert_eq!(clock.end_ns(), 23_000);
    clock.issue_at(30_000);
    clock.copy(0);
    assert_eq!(clock.end_ns(), 30_750);
}

#[test]
fn dies_work_beside_each_other_and_share_their_channel() {
    let mut clock = clock(1, 2);
    clock.issue_at(0);
    clock.program(0, 0);
    clock.program(1, 0);
    assert_eq!(clock.end_ns(), 750, "the second transfer waits for the first");
    clock.program(0, 0);
    assert_eq!(clock.end_ns(), 1_425, "its transfer is over, and it waits for the die");
}

#[test]
fn a_request_ends_with_its_slowest_operation_and_does_not_wait_for_collection() {
    let mut clock = clock(2, 1);
    clock.issue_at(0);
    in_background(&mut clock, |clock| clock.erase(0));
    clock.program(1, 1);
    assert_eq!(clock.end_ns(), 725);
    clock.issue_at(100);
    clock.read(0, 0);
    assert_eq!(clock.end_ns(), 3_075, "the die was erasing");
}

fn in_background(clock: &mut Clock, operations: impl FnOnce(&mut Clock)) {
    let outer = clock.open_scope(Urgency::Background);
    operations(clock);
    clock.close_scope(outer);
}

#[test]
fn steps_follow_each_other_and_pages_of_a_request_overlap() {
    let mut clock = clock(2, 1);
    clock.issue_at(0);
    for page in 0..2 {
        let outer = clock.open_scope(Urgency::Foreground);
        clock.read(page, page);
        clock.wait();
        clock.read(page, page);
        clock.close_scope(outer);
    }
    assert_eq!(clock.end_ns(), 150, "one after the other they would take 300");
    clock.issue_at(0);
    assert_eq!(clock.end_ns(), 0, "the next request does not wait");
}

#[test]
fn a_step_waits_for_all_of_its_scope_and_of_the_scopes_inside() {
    let mut clock = clock(3, 1);
    clock.issue_at(0);
    let outer = clock.open_scope(Urgency::Foreground);
    for die in 0..2 {
        let inner = clock.open_scope(Urgency::Foreground);
        clock.read(die, die);
        clock.wait();
        clock.program(die, die);
        clock.close_scope(inner);
    }
    assert_eq!(clock.until_ns(), 800);
    clock.wait();
    clock.program(2, 2);
    assert_eq!((clock.until_ns(), clock.end_ns()), (1_525, 1_525));
    clock.close_scope(outer);
    clock.read(2, 2);
    assert_eq!(clock.end_ns(), 1_600, "issued at 0, and its die was busy");
}

#[test]
fn nothing_waits_for_the_background() {
    let mut clock = clock(2, 1);
    clock.issue_at(0);
    in_background(&mut clock, |clock| {
        clock.read(0, 0);
        clock.wait();
        let inner = clock.open_scope(Urgency::Foreground);
        clock.program(1, 1);
        clock.close_scope(inner);
        assert_eq!(clock.until_ns(), 800, "its own steps do");
    });
    assert_eq!((clock.until_ns(), clock.end_ns()), (0, 0));
    clock.wait_until(5_000);
    clock.read(0, 0);
    assert_eq!(clock.end_ns(), 5_075);
}

#[test]
fn a_request_closes_what_an_error_left_open() {
    let mut clock = clock(1, 1);
    clock.issue_at(0);
    let _ = clock.open_scope(Urgency::Background);
    clock.wait_until(9_000);
    clock.issue_at(10);
    clock.read(0, 0);
    assert_eq!(clock.end_ns(), 85);
}

/// With a plain next-free time of the channel the second read would end at 3,100.
#[test]
fn a_transfer_far_ahead_leaves_the_channel_to_others() {
    let mut clock = clock(1, 2);
    clock.issue_at(0);
    in_background(&mut clock, |clock| clock.erase(0));
    clock.read(0, 0);
    assert_eq!(clock.end_ns(), 3_075);
    clock.issue_at(10);
    clock.read(1, 0);
    assert_eq!(clock.end_ns(), 85);
}

#[test]
fn gaps_are_filled_and_intervals_joined() {
    let mut channel = Channel::default();
    assert_eq!(channel.reserve(0, 100, 10), 110);
    assert_eq!(channel.reserve(0, 0, 10), 10);
    assert_eq!(channel.reserve(0, 5, 80), 90, "between the two");
    assert_eq!(channel.busy, [(0, 90), (100, 110)]);
    assert_eq!(channel.reserve(0, 80, 11), 121, "the gap of 10 is too short");
    assert_eq!(channel.reserve(0, 80, 10), 100);
    assert_eq!(channel.busy, [(0, 121)]);
    assert_eq!(channel.reserve(121, 121, 5), 126, "what is over is forgotten");
    assert_eq!(channel.busy, [(121, 126)]);
}

/// Transfers never overlap, begin at their time or later, and take the earliest gap.
#[test]
fn random_reservations_agree_with_a_map_of_nanoseconds() {
    let random = esker_harness::random::Random::new(7);
    for _ in 0..50 {
        let (mut channel, mut taken, mut now) = (Channel::default(), vec![false; 4_000], 0);
        for _ in 0..100 {
            now += random.below(8);
            let (from, busy) = (now + random.below(60), 1 + random.below(9));
            let mut start = from as usize;
            while taken[start..start + busy as usize].iter().any(|is_taken| *is_taken) {
                start += 1;
            }
            taken[start..start + busy as usize].fill(true);
            assert_eq!(channel.reserve(now, from, busy), start as u64 + busy);
            let ordered: Vec<_> = channel.busy.iter().copied().collect();
            assert!(ordered.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ordered:?}");
        }
    }
}
