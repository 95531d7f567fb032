//! The random parts of rows and requests [2.1.6, 4.3.2].

use crate::random::Random;

/// The parameters by which numbers are drawn that are not uniform: NURand's A, and its C for
/// requests [2.1.6].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    a: i64,
    c: i64,
}

/// Numbers of customers.
pub const CUSTOMER: Skew = Skew { a: 1_023, c: 259 };
/// Numbers of items.
pub const ITEM: Skew = Skew { a: 8_191, c: 7_911 };
/// Last names, in requests; its C lies 66 above that of the rows, as [2.1.6.1] wants.
pub const NAME: Skew = Skew { a: 255, c: 223 };
/// Last names, in the first rows.
pub const NAME_LOADED: Skew = Skew { a: 255, c: 157 };

const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// A source of them.
#[derive(Clone, Debug)]
pub struct Draw(Random);

impl Draw {
    /// The source of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// A number of a range, both ends included.
    pub fn between(&mut self, first: i64, last: i64) -> i64 {
        let count = last.saturating_sub(first).saturating_add(1).max(1);
        first + self.0.below(count as u64) as i64
    }

    /// Whether one of `percent` hundred chances came true.
    pub fn chance(&mut self, percent: i64) -> bool {
        self.between(1, 100) <= percent
    }

    /// `(((random(0, A) | random(x, y)) + C) mod (y - x + 1)) + x`.
    pub fn skewed(&mut self, skew: Skew, first: i64, last: i64) -> i64 {
        let both = self.between(0, skew.a) | self.between(first, last);
        (both + skew.c) % (last - first + 1) + first
    }

    /// Letters and digits; their number is drawn from a range.
    pub fn text(&mut self, least: i64, most: i64) -> String {
        let length = self.between(least, most);
        (0..length).map(|_| char::from(LETTERS[self.0.below(62) as usize])).collect()
    }

    /// `length` digits.
    pub fn digits(&mut self, length: i64) -> String {
        (0..length).map(|_| char::from(b'0' + self.0.below(10) as u8)).collect()
    }

    /// A zip code: four digits, and 11111.
    pub fn zip(&mut self) -> String {
        self.digits(4) + "11111"
    }

    /// Two lines of a street, a city, a state and a zip code [4.3.3.1].
    pub fn address(&mut self) -> [String; 5] {
        let [street_1, street_2, city] = std::array::from_fn(|_| self.text(10, 20));
        [street_1, street_2, city, self.text(2, 2), self.zip()]
    }

    /// Data of an item or of stock: one in ten has the word ORIGINAL somewhere.
    pub fn data(&mut self) -> String {
        const WORD: &str = "ORIGINAL";
        let mut text = self.text(26, 50);
        if self.chance(10) {
            let at = self.0.below((text.len() - WORD.len()) as u64) as usize;
            text.replace_range(at..at + WORD.len(), WORD);
        }
        text
    }

    /// The numbers from 1 to `count`, in any order.
    pub fn permutation(&mut self, count: i64) -> Vec<i64> {
        let mut numbers: Vec<i64> = (1..=count).collect();
        for left in (1..numbers.len()).rev() {
            numbers.swap(left, self.0.below(left as u64 + 1) as usize);
        }
        numbers
    }
}

/// The last name that a number from 0 to 999 makes: a syllable for each digit.
#[must_use]
pub fn last_name(number: i64) -> String {
    let syllable = |digit: i64| SYLLABLES[digit.rem_euclid(10) as usize];
    [syllable(number / 100), syllable(number / 10), syllable(number)].concat()
}
