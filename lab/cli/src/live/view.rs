//! A model as characters: a pure function, so that a test can say what a screen looks like.
//!
//! ```text
//!   title                                    time
//!   ┌ tree ─────────────────────────────────────┐   bars, a component each; widths are logarithms
//!   │ level 2   ░░░░░░████████          12 MiB  │   ░ merged and left, █ there
//!   │ keys      ──────▼───────────────    43 %  │   the wavefront
//!   └───────────────────────────────────────────┘
//!   ┌ puts ──────────────┐┌ gets ───────────────┐   a second's rate; p99 and max of each window
//!   └────────────────────┘└─────────────────────┘
//!   written · space · memory · merges
//!   lines of the command
//! ```
//!
//! Parts without room are left out, from the bottom; every size of the terminal works.

use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Sparkline, SparklineBar, Widget};

use super::board::Shown;
use super::meter::Window;
use super::model::{Bar, Figures, Model, Part, Series, Tree};

/// Less than this would not be a line in a log scale.
const BAR_UNIT_BYTES: f64 = 4096.0;
const NAME_CELLS: usize = 11;
const NUMBER_CELLS: usize = 12;
/// A rate or a latency with its name, left of its line.
const LABEL_CELLS: u16 = 19;
/// The scale of latencies: 100 ns to 1 s, a hundred steps to a tenfold.
const LATENCY_FLOOR_NANOS: f64 = 100.0;
const LATENCY_STEPS: f64 = 100.0;
const LATENCY_STEPS_MAX: u64 = 700;
/// Lines of a series, in its frame: the rate, the p99 and, if there are enough rows, the maximum.
const SERIES_LINES: u16 = 3;
const ROWS_FOR_MAXIMUM: u16 = 18;

pub(super) fn render(model: &Model, shown: &Shown, area: Rect, buffer: &mut Buffer) {
    let lines = u16::try_from(shown.lines.len()).unwrap_or(u16::MAX);
    let series = SERIES_LINES - u16::from(area.height < ROWS_FOR_MAXIMUM);
    let rows = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(6),
        Constraint::Length(series * line_rows(area.height) + 2),
        Constraint::Length(1),
        Constraint::Length(lines.min(area.height / 4)),
    ]);
    let [title, tree, series, figures, rest] = rows.areas(area);
    title_line(shown, model.figures.elapsed, title, buffer);
    tree_rows(model, tree, buffer);
    let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(series);
    let [writes, reads] = shown.names;
    series_rows(writes, &model.writes, left, buffer);
    series_rows(reads, &model.reads, right, buffer);
    let columns = usize::from(figures.width);
    Line::from(figures_text(&model.figures, columns)).render(figures, buffer);
    // The latest lines are those that matter.
    let skipped = shown.lines.len().saturating_sub(rest.height.into());
    let last = shown.lines.iter().skip(skipped).map(|line| Line::from(line.as_str()));
    Paragraph::new(last.collect::<Vec<_>>()).render(rest, buffer);
}

/// Rows of each line of a series: more where the tree does not need them.
fn line_rows(rows: u16) -> u16 {
    (rows / 10).saturating_sub(1).clamp(1, 3)
}

fn title_line(shown: &Shown, elapsed: Duration, area: Rect, buffer: &mut Buffer) {
    let right = format!("  {:.1} s   q quits ", elapsed.as_secs_f64());
    let cells = u16::try_from(right.len()).unwrap_or(u16::MAX);
    let [left, rest] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(cells)]).areas(area);
    Line::from(format!(" {}", shown.title)).bold().render(left, buffer);
    Line::from(right).right_aligned().render(rest, buffer);
}

fn tree_rows(model: &Model, area: Rect, buffer: &mut Buffer) {
    let block = Block::bordered().title(tree_title(&model.tree, model.figures.growth));
    let inner = block.inner(area);
    block.render(area, buffer);
    let cells = usize::from(inner.width).saturating_sub(NAME_CELLS + NUMBER_CELLS);
    let line = |bar: &Bar| bar_line(bar, model.scale_bytes, cells);
    // The wavefront keeps its place at the bottom, whatever comes and goes above it.
    let last = usize::from(inner.height.saturating_sub(1));
    let mut lines: Vec<Line<'_>> = model.tree.bars_for(last).iter().map(line).collect();
    lines.resize(last, Line::default());
    lines.push(wavefront_line(&model.tree, cells));
    Paragraph::new(lines).render(inner, buffer);
}

fn tree_title(tree: &Tree, growth: f64) -> String {
    let does = match (&tree.merging, tree.flushing) {
        (Some(merging), _) => {
            let what = if merging.full { "merging everything" } else { "merging" };
            format!("{what}, {:.0} % written", merging.done * 100.0)
        }
        (None, true) => "writing the memtable out".to_owned(),
        (None, false) => "at rest".to_owned(),
    };
    format!(" tree, growth {growth:.1}: {does} ")
}

fn bar_line(bar: &Bar, scale_bytes: u64, cells: usize) -> Line<'static> {
    let width = width(bar.bytes, scale_bytes, cells);
    let split = |share: f64| ((width as f64 * share).round() as usize).min(width);
    let (left, right) = match bar.part {
        Part::Unchanged => ("█".repeat(width).blue(), Span::raw("")),
        Part::Input(gone) => {
            let gone = split(gone);
            ("░".repeat(gone).dark_gray(), "█".repeat(width - gone).yellow())
        }
        Part::Output(done) => {
            let done = split(done);
            ("█".repeat(done).green(), "·".repeat(width - done).dark_gray())
        }
    };
    let size = match bar.part {
        Part::Output(done) => (bar.bytes as f64 * done) as u64,
        _ => bar.bytes,
    };
    let blank = " ".repeat(cells - width);
    let about = if bar.runs.is_some() { "≈ " } else { "" };
    let size = format!("{blank}{:>NUMBER_CELLS$}", format!("{about}{}", HumanBytes(size)));
    Line::from(vec![Span::raw(name(&bar.name)), left, right, Span::raw(size)])
}

fn wavefront_line(tree: &Tree, cells: usize) -> Line<'static> {
    let Some(merging) = &tree.merging else {
        return Line::from(format!("{}{}", name("keys"), "─".repeat(cells))).dark_gray();
    };
    let before = ((cells as f64 * merging.wavefront) as usize).min(cells.saturating_sub(1));
    let after = cells.saturating_sub(before + 1);
    Line::from(vec![
        Span::raw(name("keys")),
        "─".repeat(before).green(),
        Span::styled("▼".repeat(cells.min(1)), Style::new().fg(Color::Red)),
        "─".repeat(after).yellow(),
        Span::raw(format!("{:>NUMBER_CELLS$}", format!("{:.0} %", merging.wavefront * 100.0))),
    ])
}

/// A space before it and one behind; a long one, that of many runs, loses its first word.
fn name(name: &str) -> String {
    let (width, room) = (NAME_CELLS - 1, NAME_CELLS - 2);
    let short = name.split_once(' ').filter(|_| name.len() > room).map_or(name, |(_, end)| end);
    format!(" {short:<width$.room$}")
}

/// Cells of a bar: the logarithm of its bytes, where the most bytes fill all cells. What is there
/// at all has a cell.
pub(super) fn width(bytes: u64, scale_bytes: u64, cells: usize) -> usize {
    let size = |bytes: u64| (1.0 + bytes as f64 / BAR_UNIT_BYTES).log2();
    if bytes == 0 || scale_bytes == 0 {
        return 0;
    }
    let share = (size(bytes) / size(scale_bytes)).min(1.0);
    ((share * cells as f64).round() as usize).clamp(cells.min(1), cells)
}

fn series_rows(name: &str, series: &Series, area: Rect, buffer: &mut Buffer) {
    let block = Block::bordered().title(format!(" {name} "));
    let inner = block.inner(area);
    block.render(area, buffer);
    let last = series.windows.back().copied().unwrap_or_default();
    let rate = format!("{}/s", HumanCount(series.rate().round() as u64));
    let count = |window: &Window| Some(window.count);
    let p99 = |window: &Window| latency_step(window.p99_nanos);
    let longest = |window: &Window| latency_step(window.max_nanos);
    let max = Some(LATENCY_STEPS_MAX);
    row("rate", rate, (series, &count, None, Color::Cyan), 0, inner, buffer);
    let value = duration(last.p99_nanos);
    row("p99", value, (series, &p99, max, Color::Green), 1, inner, buffer);
    let value = duration(last.max_nanos);
    row("max", value, (series, &longest, max, Color::Red), 2, inner, buffer);
}

/// The data from which a line is drawn: windows, a height for each, the greatest height, the
/// colour.
type Drawn<'a> = (&'a Series, &'a dyn Fn(&Window) -> Option<u64>, Option<u64>, Color);

fn row(
    name: &str,
    value: String,
    (series, value_of, max, color): Drawn<'_>,
    number: u16,
    area: Rect,
    buffer: &mut Buffer,
) {
    let height = (area.height / SERIES_LINES).max(1);
    let y = area.y.saturating_add(number.saturating_mul(height));
    let line = Rect { y, height, ..area }.intersection(area);
    let [label, rest] =
        Layout::horizontal([Constraint::Length(LABEL_CELLS), Constraint::Min(0)]).areas(line);
    // Next to the lower end of its line.
    let label =
        Rect { y: label.bottom().saturating_sub(1), height: 1, ..label }.intersection(label);
    Line::from(format!(" {name:<5}{value:>11}")).render(label, buffer);
    let skipped = series.windows.len().saturating_sub(rest.width.into());
    let bars: Vec<SparklineBar> =
        series.windows.iter().skip(skipped).map(|window| value_of(window).into()).collect();
    let mut sparkline = Sparkline::default().data(bars).style(Style::new().fg(color));
    if let Some(max) = max {
        sparkline = sparkline.max(max);
    }
    sparkline.render(rest, buffer);
}

/// The height of a latency; none where nothing ended.
pub(super) fn latency_step(nanos: u64) -> Option<u64> {
    let tenfold = (nanos as f64 / LATENCY_FLOOR_NANOS).log10();
    (nanos > 0).then(|| ((tenfold * LATENCY_STEPS).max(0.0) as u64).min(LATENCY_STEPS_MAX))
}

/// As many figures as there is room for.
fn figures_text(figures: &Figures, columns: usize) -> String {
    if let Some(trouble) = &figures.trouble {
        return format!(" stopped: {}", esker_terminal::exit::one_line(trouble));
    }
    let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (memory, budget) = (mib(figures.memory_bytes), mib(figures.budget_bytes));
    let mut parts = vec![
        format!("merges {}", HumanCount(figures.merges)),
        format!("written/user {}", ratio(figures.written_per_byte)),
        format!("space/live {}", ratio(figures.space_over_live)),
        format!("memory {memory:.1} of {budget:.1} MiB"),
    ];
    loop {
        let text = format!(" {}", parts.join("  "));
        if text.len() <= columns || parts.pop().is_none() {
            return text;
        }
    }
}

/// Three digits and a unit.
fn duration(nanos: u64) -> String {
    let unit = |per: f64, name: &str| format!("{:.1} {name}", nanos as f64 / per);
    match nanos {
        0 => "-".to_owned(),
        1..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => unit(1e3, "µs"),
        1_000_000..1_000_000_000 => unit(1e6, "ms"),
        _ => unit(1e9, "s"),
    }
}
