//! Scales: how much of everything is measured.

/// The size of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Seconds in all: shows that everything runs, and nothing else.
    Tiny,
    /// Minutes. Ratios are rough.
    Small,
    /// An hour or two. The bars are made for this one.
    Full,
}

impl Scale {
    /// Every scale.
    pub const ALL: [Self; 3] = [Self::Tiny, Self::Small, Self::Full];

    /// The name as it is typed and stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Small => "small",
            Self::Full => "full",
        }
    }

    /// The scale with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scale| scale.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        assert!(Scale::ALL.iter().all(|scale| Scale::parse(scale.as_str()) == Some(*scale)));
        assert_eq!(Scale::parse("huge"), None);
    }
}
