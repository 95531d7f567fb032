//! The arrays that are rearranged, the memory for each, and the speed that is required.

/// An array, what is made of it, and the bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Its name on the command line.
    pub name: &'static str,
    /// Sizes of the dimensions; records are float64.
    pub sizes: &'static [u64],
    /// The same with a few thousand records, to show that everything runs.
    pub tiny: &'static [u64],
    /// The pattern of the request, and sizes of its tiles.
    pub pattern: &'static str,
    /// Sizes that the pattern names.
    pub names: &'static [(&'static str, u64)],
    /// The order of the axes in the result, where nothing else changes.
    pub order: Option<&'static [usize]>,
    /// Bytes of memory.
    pub memory: Memory,
    /// Seconds over those of the copy, at most.
    pub must: f64,
    /// The ratio that was hoped for.
    pub aim: f64,
}

/// The amount of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// A number of MiB.
    Mib(u64),
    /// A number of hundredths of the array.
    Percent(u64),
}

const SMALL: &[u64] = &[11_503, 11_677];
const LARGE: &[u64] = &[23_003, 23_339];
const CUBE: &[u64] = &[574, 100, 100, 50, 2];
const TINY: &[u64] = &[211, 307];
const TINY_CUBE: &[u64] = &[57, 10, 10, 5, 2];

/// All cases.
pub const ALL: [Case; 6] = [
    Case { name: "a1", sizes: SMALL, memory: Memory::Mib(61), must: 1.5, aim: 1.2, ..TRANSPOSE },
    TRANSPOSE,
    Case {
        name: "b1",
        pattern: "a b c d e -> d b a c e",
        order: Some(&[3, 1, 0, 2, 4]),
        must: 1.5,
        aim: 1.2,
        ..REVERSAL
    },
    REVERSAL,
    Case {
        name: "c",
        pattern: "(h h2) (w w2) -> h w h2 w2",
        names: &[("h2", 512), ("w2", 512)],
        order: None,
        memory: Memory::Percent(6),
        must: 1.15,
        aim: 1.0,
        ..TRANSPOSE
    },
    Case { name: "d", memory: Memory::Mib(4), must: 3.0, aim: 2.3, ..TRANSPOSE },
];

const TRANSPOSE: Case = Case {
    name: "a4",
    sizes: LARGE,
    tiny: TINY,
    pattern: "h w -> w h",
    names: &[],
    order: Some(&[1, 0]),
    memory: Memory::Mib(245),
    must: 2.0,
    aim: 1.4,
};

const REVERSAL: Case = Case {
    name: "b2",
    sizes: CUBE,
    tiny: TINY_CUBE,
    pattern: "a b c d e -> e d c b a",
    names: &[],
    order: Some(&[4, 3, 2, 1, 0]),
    memory: Memory::Percent(6),
    must: 2.2,
    aim: 1.6,
};

impl Case {
    /// The case of a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        ALL.into_iter().find(|case| case.name == name)
    }

    /// The same with a small array, in memory that is enough for everything to run.
    #[must_use]
    pub const fn shrunk(self) -> Self {
        Self { sizes: self.tiny, memory: Memory::Mib(4), ..self }
    }

    /// Bytes of the records.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sizes.iter().product::<u64>() * 8
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match self.memory {
            Memory::Mib(mib) => mib << 20,
            Memory::Percent(percent) => self.bytes() / 100 * percent,
        }
    }

    /// The pattern that changes nothing.
    #[must_use]
    pub fn copy_pattern(&self) -> String {
        let names: Vec<String> = (0..self.sizes.len()).map(|axis| format!("x{axis}")).collect();
        let names = names.join(" ");
        format!("{names} -> {names}")
    }
}
