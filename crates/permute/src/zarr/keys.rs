//! The names of chunk files.

use std::fmt::Write as _;

/// The scheme by which a place in the grid becomes a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Whether names begin with `c` (version 3).
    pub has_prefix: bool,
    /// The separator between numbers: `.` or `/`.
    pub separator: char,
}

impl Keys {
    /// The name of a chunk, from the folder of its array.
    #[must_use]
    pub fn name(self, place: &[u64]) -> String {
        let mut name = String::new();
        if self.has_prefix {
            name.push('c');
        } else if place.is_empty() {
            name.push('0');
        }
        for number in place {
            if !name.is_empty() {
                name.push(self.separator);
            }
            // Writing to a string cannot fail.
            let _ = write!(name, "{number}");
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_specifications() {
        let name =
            |has_prefix, separator, place: &[u64]| Keys { has_prefix, separator }.name(place);
        assert_eq!(name(true, '/', &[0, 12]), "c/0/12");
        assert_eq!(name(true, '.', &[0, 12]), "c.0.12");
        assert_eq!(name(true, '/', &[]), "c");
        assert_eq!(name(false, '.', &[3, 0, 1]), "3.0.1");
        assert_eq!(name(false, '/', &[3]), "3");
        assert_eq!(name(false, '.', &[]), "0");
    }
}
