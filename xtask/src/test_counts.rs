//! The counts of the test suites in their last run, as tables.
//!
//! A suite writes its counts in `<suite>.jsonl`, one object a line:
//! `{"suite":"crash","case":"full merge","counts":{"states":6112,"nested":120}}`.
//! A case that ran twice shows its last line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::Result;

/// The counts of one case, in the order in which the suite gives them.
pub type Row = Vec<(String, u64)>;
/// The counts of each case of each suite.
pub type Counts = BTreeMap<String, BTreeMap<String, Row>>;

/// Reads every `*.jsonl` file of a folder; a folder that is not there holds no counts.
pub fn read_counts(folder: &Path) -> Result<Counts> {
    let mut counts = Counts::new();
    if !folder.exists() {
        return Ok(counts);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = fs::read_to_string(&path)?;
            add_lines(&text, &mut counts)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(counts)
}

/// Adds the lines of one file.
fn add_lines(text: &str, counts: &mut Counts) -> Result<()> {
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let value: Value =
            serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        let name = |field| {
            let found = value.get(field).and_then(Value::as_str).map(str::to_owned);
            found.ok_or_else(|| format!("line {number}: no text in \"{field}\""))
        };
        let (suite, case) = (name("suite")?, name("case")?);
        let of_case = value.get("counts").and_then(Value::as_object);
        let of_case = of_case.ok_or_else(|| format!("line {number}: no object in \"counts\""))?;
        let mut row = Row::new();
        for (count, value) in of_case {
            let value = value.as_u64().ok_or_else(|| format!("line {number}: {count}: {value}"))?;
            row.push((count.clone(), value));
        }
        counts.entry(suite).or_default().insert(case, row);
    }
    Ok(())
}

/// The tables in Markdown: one for each suite, with a row for each case and the sums below.
#[must_use]
pub fn tables(counts: &Counts) -> String {
    let mut page = String::new();
    for (suite, cases) in counts {
        let columns = columns(cases);
        let _ = write!(page, "\n## {suite}\n\n| case |");
        for column in &columns {
            let _ = write!(page, " {column} |");
        }
        let _ = write!(page, "\n|---|{}\n", "---:|".repeat(columns.len()));
        for (case, row) in cases {
            write_row(&mut page, case, columns.iter().map(|column| count(row, column)));
        }
        if cases.len() > 1 {
            let sum = |column: &&str| cases.values().filter_map(|row| count(row, column)).sum();
            write_row(&mut page, "**sum**", columns.iter().map(|column| Some(sum(column))));
        }
    }
    page
}

/// Every count of a suite, by first appearance.
fn columns(cases: &BTreeMap<String, Row>) -> Vec<&str> {
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in cases.values().flatten() {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    columns
}

fn count(row: &Row, column: &str) -> Option<u64> {
    row.iter().find(|(name, _)| name == column).map(|(_, count)| *count)
}

fn write_row(page: &mut String, case: &str, cells: impl Iterator<Item = Option<u64>>) {
    let _ = write!(page, "| {case} |");
    for cell in cells {
        let _ = write!(page, " {} |", cell.map(grouped).unwrap_or_default());
    }
    page.push('\n');
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_become_one_table_a_suite() {
        let mut counts = Counts::new();
        let text = r#"{"suite":"crash","case":"load","counts":{"states":1}}
{"suite":"crash","case":"load","counts":{"states":5000}}

{"suite":"crash","case":"merge","counts":{"states":1234567,"a":7}}"#;
        add_lines(text, &mut counts).unwrap();
        let expected = "\n## crash\n\n| case | states | a |\n|---|---:|---:|\n\
                        | load | 5,000 |  |\n| merge | 1,234,567 | 7 |\n\
                        | **sum** | 1,239,567 | 7 |\n";
        assert_eq!(tables(&counts), expected);
    }

    /// The error of a line that is no count has the number of the line.
    #[test]
    fn a_bad_line_is_named() {
        for bad in [
            "no json",
            r#"{"case":"a","counts":{}}"#,
            r#"{"suite":"a","case":"a"}"#,
            r#"{"suite":"a","case":"a","counts":{"x":-1}}"#,
        ] {
            let error = add_lines(&format!("\n{bad}"), &mut Counts::new()).unwrap_err();
            assert!(error.to_string().starts_with("line 2: "), "{error}");
        }
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
