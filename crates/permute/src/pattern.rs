//! Patterns: the grammar of einops' `rearrange`, and `-name` on the right for a flipped axis.
//!
//! ```text
//! pattern := side "->" side          side  := item*
//! item    := axis | "(" axis* ")"    axis  := name | "1" | "..."
//! ```
//! A name is letters, digits and underscores, not beginning with a digit and neither beginning nor
//! ending with an underscore. Both sides name the same axes; `...` means any axes without names,
//! and may be in parentheses only on the right.

use crate::error::{Result, unfit};

/// One axis of a side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Axis {
    /// A name, and whether it is flipped.
    Named(String, bool),
    /// An axis of one value.
    One,
    /// Axes without names.
    Ellipsis,
}

/// A pattern: for each side its groups, each the axes that one dimension is made of, the slowest
/// first. A lone axis is a group of one; so is a lone `...`, which means several dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Dimensions of the input array.
    pub left: Vec<Group>,
    /// Dimensions of the output array.
    pub right: Vec<Group>,
}

/// The axes of one dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The axes, the slowest first.
    pub axes: Vec<Axis>,
    /// Whether it is in parentheses.
    pub is_joined: bool,
}

/// The longest pattern, in bytes.
const LENGTH_MAX: usize = 4096;

impl Pattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > LENGTH_MAX {
            return unfit(format!("the pattern is longer than {LENGTH_MAX} bytes"));
        }
        let Some((left, right)) = text.split_once("->") else {
            return unfit(format!("the pattern '{text}' has no '->': write it as 'h w -> w h'"));
        };
        if right.contains("->") {
            return unfit(format!("the pattern '{text}' has more than one '->'"));
        }
        let pattern = Self { left: side(left, false)?, right: side(right, true)? };
        pattern.check()?;
        Ok(pattern)
    }

    fn check(&self) -> Result<()> {
        let (left, right) = (names(&self.left), names(&self.right));
        for (side, names) in [("left", &left), ("right", &right)] {
            let mut sorted = names.clone();
            sorted.sort_unstable();
            if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                return unfit(format!("'{}' appears twice on the {side} of the pattern", pair[0]));
            }
        }
        for (one, other, side) in [(&left, &right, "right"), (&right, &left, "left")] {
            if let Some(name) = one.iter().find(|name| !other.contains(name)) {
                return unfit(format!("'{name}' is missing on the {side} of the pattern"));
            }
        }
        Ok(())
    }
}

/// The names of a side, `...` among them.
fn names(side: &[Group]) -> Vec<&str> {
    let axes = side.iter().flat_map(|group| &group.axes);
    axes.filter_map(|axis| match axis {
        Axis::Named(name, _) => Some(name.as_str()),
        Axis::Ellipsis => Some("..."),
        Axis::One => None,
    })
    .collect()
}

fn side(text: &str, is_right: bool) -> Result<Vec<Group>> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('…', "...");
    let mut groups: Vec<Group> = Vec::new();
    let mut open: Option<Vec<Axis>> = None;
    for token in spaced.split_whitespace() {
        match (token, &mut open) {
            ("(", Some(_)) => return unfit("parentheses within parentheses: one level is enough"),
            ("(", None) => open = Some(Vec::new()),
            (")", _) => match open.take() {
                Some(axes) => groups.push(Group { axes, is_joined: true }),
                None => return unfit("a ')' has no '(' before it"),
            },
            ("...", Some(_)) if !is_right => {
                return unfit("'...' in parentheses on the left: its sizes could not be known");
            }
            (_, Some(axes)) => axes.push(axis(token, is_right)?),
            (_, None) => {
                groups.push(Group { axes: vec![axis(token, is_right)?], is_joined: false });
            }
        }
    }
    if open.is_some() {
        return unfit("a '(' has no ')' after it");
    }
    Ok(groups)
}

fn axis(token: &str, is_right: bool) -> Result<Axis> {
    match token {
        "..." => return Ok(Axis::Ellipsis),
        "1" => return Ok(Axis::One),
        _ => {}
    }
    let (name, is_flipped) = match token.strip_prefix('-') {
        Some(name) if is_right => (name, true),
        Some(_) => return unfit(format!("'{token}': an axis is flipped on the right side")),
        None => (token, false),
    };
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return unfit(format!(
            "'{token}': only 1 may be written as a number; name the axis and give name=size"
        ));
    }
    let fits = |c: char| c.is_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(fits) || name.starts_with('_') || name.ends_with('_') {
        return unfit(format!(
            "'{token}' is no name of an axis: use letters, digits and underscores inside"
        ));
    }
    Ok(Axis::Named(name.to_owned(), is_flipped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_of_einops_is_read() {
        let text = "b (h h2) ... 1 -> (...) h2 () (1 -b) h";
        let pattern = Pattern::parse(text).unwrap();
        let named = |name: &str| Axis::Named(name.into(), false);
        let joined = |axes: &[Axis]| Group { axes: axes.to_vec(), is_joined: true };
        let alone = |axis: Axis| Group { axes: vec![axis], is_joined: false };
        assert_eq!(
            pattern.left,
            [
                alone(named("b")),
                joined(&[named("h"), named("h2")]),
                alone(Axis::Ellipsis),
                alone(Axis::One)
            ]
        );
        assert_eq!(
            pattern.right,
            [
                joined(&[Axis::Ellipsis]),
                alone(named("h2")),
                joined(&[]),
                joined(&[Axis::One, Axis::Named("b".into(), true)]),
                alone(named("h"))
            ]
        );
        assert!(Pattern::parse("h w->w h").is_ok());
        assert!(Pattern::parse("->").is_ok());
        assert!(Pattern::parse("h->-h").is_ok());
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("h w", "no '->'"),
            ("h -> h -> h", "more than one"),
            ("h h -> h", "twice"),
            ("h -> h h", "twice"),
            ("... ... -> ...", "twice"),
            ("h w -> h", "'w' is missing on the right"),
            ("h -> h w", "'w' is missing on the left"),
            ("h ... -> h", "'...' is missing on the right"),
            ("(h (w)) -> h w", "one level"),
            ("(h w -> h w", "no ')'"),
            ("h) w -> h w", "no '('"),
            ("(...) -> ...", "on the left"),
            ("-h -> h", "flipped on the right"),
            ("2 h -> h 2", "only 1"),
            ("h_ -> h_", "no name"),
            ("h$ -> h$", "no name"),
            ("h -> -", "no name"),
            ("h -> --h", "no name"),
        ] {
            let error = Pattern::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
            assert!(!error.contains('\n'));
        }
    }
}
