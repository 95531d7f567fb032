//! The screen before, during and after a merge, and the model's results for samples.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use esker::{CompactionStats, KeyspaceStats, LevelStats, Stats};
use esker_terminal::exit::Failure;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::board::{Board, Shown};
use super::meter::Window;
use super::model::{Model, Part, Ruler, Sample};
use super::or_quit;
use super::view::{self, latency_step, width};

const MIB: u64 = 1 << 20;

fn level(rank: u8, bytes: u64) -> LevelStats {
    let mut level = LevelStats::default();
    (level.rank, level.bytes, level.puts) = (rank, bytes, bytes / 128);
    level
}

/// A keyspace with a memtable of 1 MiB, this number of runs of 2 MiB, and levels of these sizes.
fn keyspace(sorted_runs: u64, levels: &[u64]) -> KeyspaceStats {
    let mut keyspace = KeyspaceStats::default();
    keyspace.memtable_bytes = MIB;
    keyspace.sorted_runs = sorted_runs;
    keyspace.shape.growth = 4.0;
    keyspace.shape.memtable_bytes = 2 * MIB;
    keyspace.levels = (1..).zip(levels).map(|(rank, bytes)| level(rank, *bytes)).collect();
    keyspace
}

/// A merge of 32 MiB in the first two levels whose wavefront has this first byte.
fn merge(wavefront: u8, written_bytes: u64) -> CompactionStats {
    let mut merge = CompactionStats::default();
    merge.levels = 2;
    (merge.written_bytes, merge.input_bytes) = (written_bytes, 32 * MIB);
    merge.wavefront = (wavefront > 0).then(|| vec![wavefront, 0, 9]);
    merge
}

fn sample(keyspace: KeyspaceStats, seconds: f64) -> Sample {
    let mut stats = Stats::default();
    stats.keyspaces.push(keyspace);
    stats.user_bytes_written = 100 * MIB;
    stats.io.push(esker::IoStats::default());
    stats.io[0].bytes_written = 420 * MIB;
    stats.space.data_file_bytes = 148 * MIB;
    stats.space.log_bytes = 12 * MIB;
    stats.memory.budget_bytes = 16 * MIB;
    stats.memory.memtable_bytes = 3 * MIB;
    stats.memory.cache_bytes = 9 * MIB;
    let window = |count, p99_nanos, max_nanos| Window { seconds: 0.1, count, p99_nanos, max_nanos };
    Sample {
        stats,
        writes: window(12_345, 9_800, 1_250_000),
        reads: window(6_000, 88_000, 91_000),
        live_bytes: 100 * MIB,
        elapsed: Duration::from_secs_f64(seconds),
    }
}

fn screen(model: &Model, lines: &[&str], columns: u16, rows: u16) -> String {
    let lines = lines.iter().map(ToString::to_string).collect();
    let shown = Shown { title: "overwriting".to_owned(), lines, names: ["puts", "gets"] };
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| view::render(model, &shown, frame.area(), frame.buffer_mut())).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let row = |y| {
        let cells = (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        cells.trim_end().to_owned()
    };
    (0..rows).map(row).collect::<Vec<_>>().join("\n")
}

/// The three moments of one merge.
fn moments() -> [String; 3] {
    let mut model = Model::new(Ruler::Even);
    let mut moments = Vec::new();
    let before = keyspace(2, &[4 * MIB, 28 * MIB, 128 * MIB]);
    let mut during = keyspace(3, &[4 * MIB, 28 * MIB, 128 * MIB]);
    during.merge = Some(merge(0x40, 8 * MIB));
    let mut begun = during.clone();
    begun.sorted_runs = 2;
    begun.merge = Some(merge(0, 0));
    let mut after = keyspace(1, &[0, 30 * MIB, 128 * MIB]);
    after.merges = 1;
    model.observe(&sample(before, 0.1));
    moments.push(screen(&model, &["  store  0.1 s"], 72, 19));
    model.observe(&sample(begun, 0.2));
    model.observe(&sample(during, 0.3));
    moments.push(screen(&model, &[], 72, 19));
    model.observe(&sample(after, 12.0));
    moments.push(screen(&model, &[], 72, 19));
    moments.try_into().unwrap()
}

#[test]
fn before_a_merge_everything_is_unmerged() {
    let [before, _, _] = moments();
    assert_eq!(
        before,
        [
            " overwriting                                            0.1 s   q quits",
            "┌ tree, growth 4.0: at rest ───────────────────────────────────────────┐",
            "│ memtable  █████████████████████████                          1.00 MiB│",
            "│ run 2     ████████████████████████████                     ≈ 2.00 MiB│",
            "│ run 1     ████████████████████████████                     ≈ 2.00 MiB│",
            "│ level 1   ███████████████████████████████                    4.00 MiB│",
            "│ level 2   ████████████████████████████████████████          28.00 MiB│",
            "│ level 3   ███████████████████████████████████████████████  128.00 MiB│",
            "│                                                                      │",
            "│                                                                      │",
            "│ keys      ───────────────────────────────────────────────            │",
            "└──────────────────────────────────────────────────────────────────────┘",
            "┌ puts ────────────────────────────┐┌ gets ────────────────────────────┐",
            "│ rate   123,450/s  █              ││ rate    60,000/s  █              │",
            "│ p99       9.8 µs  ▂              ││ p99      88.0 µs  ▃              │",
            "│ max       1.2 ms  ▄              ││ max      91.0 µs  ▃              │",
            "└──────────────────────────────────┘└──────────────────────────────────┘",
            " merges 0  written/user 4.20  space/live 1.60  memory 12.0 of 16.0 MiB",
            "  store  0.1 s",
        ]
        .join("\n")
    );
}

#[test]
fn during_a_merge_the_old_shrink_from_the_left_and_the_new_grow() {
    let [_, during, _] = moments();
    assert_eq!(
        during,
        [
            " overwriting                                            0.3 s   q quits",
            "┌ tree, growth 4.0: merging, 25 % written ─────────────────────────────┐",
            "│ memtable  █████████████████████████                          1.00 MiB│",
            "│ run 3     ████████████████████████████                     ≈ 2.00 MiB│",
            "│ run 2     ░░░░░░░█████████████████████                     ≈ 2.00 MiB│",
            "│ run 1     ░░░░░░░█████████████████████                     ≈ 2.00 MiB│",
            "│ level 1   ░░░░░░░░███████████████████████                    4.00 MiB│",
            "│ level 2   ░░░░░░░░░░██████████████████████████████          28.00 MiB│",
            "│ new       ██████████·······························          8.00 MiB│",
            "│ level 3   ███████████████████████████████████████████████  128.00 MiB│",
            "│                                                                      │",
            "│ keys      ───────────▼───────────────────────────────────        25 %│",
            "└──────────────────────────────────────────────────────────────────────┘",
            "┌ puts ────────────────────────────┐┌ gets ────────────────────────────┐",
            "│ rate   123,450/s  ███            ││ rate    60,000/s  ███            │",
            "│ p99       9.8 µs  ▂▂▂            ││ p99      88.0 µs  ▃▃▃            │",
            "│ max       1.2 ms  ▄▄▄            ││ max      91.0 µs  ▃▃▃            │",
            "└──────────────────────────────────┘└──────────────────────────────────┘",
            " merges 0  written/user 4.20  space/live 1.60  memory 12.0 of 16.0 MiB",
        ]
        .join("\n")
    );
}

#[test]
fn after_a_merge_the_new_levels_stand() {
    let [_, _, after] = moments();
    assert_eq!(
        after,
        [
            " overwriting                                           12.0 s   q quits",
            "┌ tree, growth 4.0: at rest ───────────────────────────────────────────┐",
            "│ memtable  █████████████████████████                          1.00 MiB│",
            "│ run 1     ████████████████████████████                     ≈ 2.00 MiB│",
            "│ fences                                                            0 B│",
            "│ level 2   ████████████████████████████████████████          30.00 MiB│",
            "│ level 3   ███████████████████████████████████████████████  128.00 MiB│",
            "│                                                                      │",
            "│                                                                      │",
            "│                                                                      │",
            "│                                                                      │",
            "│ keys      ───────────────────────────────────────────────            │",
            "└──────────────────────────────────────────────────────────────────────┘",
            "┌ puts ────────────────────────────┐┌ gets ────────────────────────────┐",
            "│ rate   123,450/s  ████           ││ rate    60,000/s  ████           │",
            "│ p99       9.8 µs  ▂▂▂▂           ││ p99      88.0 µs  ▃▃▃▃           │",
            "│ max       1.2 ms  ▄▄▄▄           ││ max      91.0 µs  ▃▃▃▃           │",
            "└──────────────────────────────────┘└──────────────────────────────────┘",
            " merges 1  written/user 4.20  space/live 1.60  memory 12.0 of 16.0 MiB",
        ]
        .join("\n")
    );
}

#[test]
fn a_small_screen_joins_runs_and_leaves_whole_figures_out() {
    let mut model = Model::new(Ruler::Even);
    let mut during = keyspace(3, &[4 * MIB, 28 * MIB]);
    during.merge = Some(merge(0x80, 16 * MIB));
    model.observe(&sample(during.clone(), 0.1));
    during.sorted_runs = 7;
    model.observe(&sample(during, 0.2));
    assert_eq!(
        screen(&model, &[], 60, 16),
        [
            " overwriting                                0.2 s   q quits",
            "┌ tree, growth 4.0: merging, 50 % written ─────────────────┐",
            "│ memtable  ██████████████████████                 1.00 MiB│",
            "│ runs 4-7  ██████████████████████████████       ≈ 8.00 MiB│",
            "│ runs 1-3  ░░░░░░░░░░░░░░░██████████████        ≈ 6.00 MiB│",
            "│ level 1   ░░░░░░░░░░░░░░█████████████            4.00 MiB│",
            "│ level 2   ░░░░░░░░░░░░░░░░░█████████████████    28.00 MiB│",
            "│ new       ██████████████████·················   16.00 MiB│",
            "│                                                          │",
            "│ keys      ─────────────────▼─────────────────        50 %│",
            "└──────────────────────────────────────────────────────────┘",
            "┌ puts ──────────────────────┐┌ gets ──────────────────────┐",
            "│ rate   123,450/s  ██       ││ rate    60,000/s  ██       │",
            "│ p99       9.8 µs  ▂▂       ││ p99      88.0 µs  ▃▃       │",
            "└────────────────────────────┘└────────────────────────────┘",
            " merges 0  written/user 4.20  space/live 1.60",
        ]
        .join("\n")
    );
}

#[test]
fn before_the_first_merge_a_run_is_as_large_as_a_memtable_was() {
    let mut model = Model::new(Ruler::Even);
    let mut full = keyspace(0, &[]);
    (full.memtable_bytes, full.shape.memtable_bytes) = (3 * MIB, 0);
    model.observe(&sample(full.clone(), 0.1));
    (full.memtable_bytes, full.sorted_runs) = (MIB, 1);
    model.observe(&sample(full, 0.2));
    let bytes: Vec<_> = model.tree.bars.iter().map(|bar| bar.bytes).collect();
    assert_eq!(bytes, [MIB, 3 * MIB]);
}

#[test]
fn a_tall_screen_has_taller_series() {
    let mut model = Model::new(Ruler::Even);
    model.observe(&sample(keyspace(0, &[]), 0.1));
    let text = screen(&model, &[], 72, 30);
    let rows: Vec<_> = text.lines().skip(21).collect();
    assert_eq!(
        rows,
        [
            "┌ puts ────────────────────────────┐┌ gets ────────────────────────────┐",
            "│                   █              ││                   █              │",
            "│ rate   123,450/s  █              ││ rate    60,000/s  █              │",
            "│                                  ││                                  │",
            "│ p99       9.8 µs  ▄              ││ p99      88.0 µs  ▆              │",
            "│                   ▁              ││                                  │",
            "│ max       1.2 ms  █              ││ max      91.0 µs  ▆              │",
            "└──────────────────────────────────┘└──────────────────────────────────┘",
            " merges 0  written/user 4.20  space/live 1.60  memory 12.0 of 16.0 MiB",
        ]
    );
}

#[test]
fn runs_that_came_after_the_merge_began_are_not_merged() {
    let mut model = Model::new(Ruler::Even);
    let mut keyspace = keyspace(2, &[4 * MIB]);
    keyspace.merge = Some(merge(0x80, MIB));
    model.observe(&sample(keyspace.clone(), 0.0));
    keyspace.sorted_runs = 7;
    model.observe(&sample(keyspace.clone(), 0.1));
    let half = 128.0 / 255.0;
    let parts = |model: &Model| {
        let runs = model.tree.bars.iter().filter(|bar| bar.name.starts_with("run"));
        runs.map(|bar| (bar.name.clone(), bar.part != Part::Unchanged)).collect::<Vec<_>>()
    };
    let expected = [("run 7", false), ("run 6", false), ("run 5", false), ("run 4", false)];
    let mut expected = expected.map(|(name, merged)| (name.to_owned(), merged)).to_vec();
    expected.extend([("run 3".to_owned(), false), ("runs 1-2".to_owned(), true)]);
    assert_eq!(parts(&model), expected);
    let Some(merging) = model.tree.merging else { panic!() };
    assert!((merging.wavefront - half).abs() < 0.01);
    // Old runs that share a bar still tell those that are merged from those that are not.
    keyspace.sorted_runs = 9;
    model.observe(&sample(keyspace.clone(), 0.2));
    expected = vec![("run 9".to_owned(), false), ("run 8".to_owned(), false)];
    expected.extend([("run 7".to_owned(), false), ("run 6".to_owned(), false)]);
    expected.extend([("runs 3-5".to_owned(), false), ("runs 1-2".to_owned(), true)]);
    assert_eq!(parts(&model), expected);
    // The next merge takes all runs that exist when it is first seen.
    keyspace.merges += 1;
    model.observe(&sample(keyspace, 0.3));
    assert!(parts(&model).iter().all(|(_, merged)| *merged));
}

#[test]
fn the_rate_is_that_of_the_last_second_and_nothing_grows_without_end() {
    let mut model = Model::new(Ruler::Even);
    assert_eq!(model.writes.rate(), 0.0);
    for number in 0..1000u64 {
        let mut sample = sample(keyspace(0, &[]), 0.0);
        sample.writes.count = number;
        model.observe(&sample);
    }
    assert!((model.writes.rate() - 9945.0).abs() < 1e-6);
    assert_eq!(model.writes.windows.len(), 300);
}

#[test]
fn a_store_without_keyspaces_or_data_divides_by_nothing() {
    let mut model = Model::new(Ruler::Sampled(Vec::new()));
    model.observe(&Sample::default());
    assert_eq!((model.figures.written_per_byte, model.figures.space_over_live), (None, None));
    assert_eq!(model.ruler.share(b"any"), 0.0);
    let mut keyspace = keyspace(0, &[]);
    keyspace.merge = Some(CompactionStats::default());
    keyspace.stalled = Some("no room\u{1b}[2J".to_owned());
    model.observe(&sample(keyspace, 0.0));
    let text = screen(&model, &[], 72, 19);
    assert!(text.contains("stopped: no room\\u{1b}[2J"), "{text}");
}

#[test]
fn a_ruler_knows_the_place_of_a_key() {
    let even = |key: &[u8]| Ruler::Even.share(key);
    assert_eq!((even(b""), even(&[0xff; 16])), (0.0, 1.0));
    assert!((even(&[0x80]) - 0.5).abs() < 1e-9);
    assert!((even(&[0x40, 0, 0, 0, 0, 0, 0, 0, 0xff]) - 0.25).abs() < 1e-9);
    let sampled = Ruler::Sampled(["b", "d", "f", "h"].map(|key| key.into()).to_vec());
    assert_eq!(
        ["a", "b", "e", "z"].map(|key| sampled.share(key.as_bytes())),
        [0.0, 0.25, 0.5, 1.0]
    );
}

#[test]
fn drawing_that_fails_or_panics_asks_the_work_to_quit() {
    let has_quit = |draw: fn() -> Result<(), Failure>| {
        let board = Board::default();
        let drawn = std::panic::catch_unwind(AssertUnwindSafe(|| or_quit(&board, draw)));
        (drawn.is_ok_and(|drawn| drawn.is_ok()), board.has_quit())
    };
    assert_eq!(has_quit(|| Ok(())), (true, false));
    assert_eq!(has_quit(|| Err(Failure::OutputClosed)), (false, true));
    assert_eq!(has_quit(|| panic!("planted")), (false, true));
}

#[test]
fn latencies_have_a_fixed_scale() {
    assert_eq!(latency_step(0), None);
    let steps = [1, 100, 1_000, 1_000_000_000, u64::MAX].map(latency_step);
    assert_eq!(steps, [0, 0, 100, 700, 700].map(Some));
}

proptest! {
    #[test]
    fn the_share_of_a_key_never_falls(a: Vec<u8>, b: Vec<u8>, mut keys: Vec<Vec<u8>>) {
        keys.sort();
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        for ruler in [Ruler::Even, Ruler::Sampled(keys)] {
            let (low, high) = (ruler.share(&low), ruler.share(&high));
            prop_assert!(0.0 <= low && low <= high && high <= 1.0, "{} {}", low, high);
        }
    }

    #[test]
    fn a_larger_component_has_no_shorter_bar(a: u64, b: u64, scale: u64, cells in 0usize..300) {
        let (small, large) = (a.min(b), a.max(b));
        let (small, large) = (width(small, scale, cells), width(large, scale, cells));
        prop_assert!(small <= large && large <= cells);
        prop_assert_eq!(width(scale, scale, cells), if scale == 0 { 0 } else { cells });
    }

    #[test]
    fn any_store_can_be_drawn_in_any_size(
        (columns, rows) in (1u16..120, 1u16..40),
        (sorted_runs, memtable_bytes, run_bytes) in any::<(u64, u64, u64)>(),
        levels in proptest::collection::vec(any::<u64>(), 0..20),
        merge in proptest::option::of(any::<(usize, u64, u64, Vec<u8>)>()),
        (count, nanos) in any::<(u32, u64)>(),
        lines in 0usize..50,
    ) {
        let mut of = keyspace(sorted_runs, &levels);
        of.memtable_bytes = memtable_bytes;
        of.shape.memtable_bytes = run_bytes;
        of.merge = merge.map(|(levels, written_bytes, input_bytes, wavefront)| {
            let mut merge = CompactionStats::default();
            (merge.levels, merge.wavefront) = (levels, Some(wavefront));
            (merge.written_bytes, merge.input_bytes) = (written_bytes, input_bytes);
            merge
        });
        let mut sample = sample(of, 0.0);
        let count = u64::from(count);
        sample.reads = Window { seconds: 0.0, count, p99_nanos: nanos, max_nanos: nanos };
        let mut model = Model::new(Ruler::Even);
        model.observe(&sample);
        model.observe(&sample);
        screen(&model, &vec!["line"; lines], columns, rows);
    }
}
