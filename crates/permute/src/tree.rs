//! One axis cut into digits, without padding (R. Thonangi's thesis, section 3.3.2).
//!
//! A [`Tree`] is an axis of `radix` values whose leaves, counted from the lowest, are its final
//! digits. A cut of a node of radix r into (r2, r1) sends x to (⌊x / r1⌋, x mod r1), and is valid
//! when (r2 − 1) · r1 < r ≤ r2 · r1: where the product is larger than r, some settings of the
//! digits do not exist, and everything here counts only those that do.
//!
//! Invariants: every radix is at least 1; `leaves[0].z == 1`; the weights rise with the index;
//! the value of the axis is Σ digit · z.

/// A final digit: its radix, and what one step of it adds to the value of its axis. That weight
/// is also how many values share the digits down to this one when all of them are zero: z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The largest number of values of the digit.
    pub radix: u64,
    /// Its weight.
    pub z: u64,
}

/// A node: a digit, or a cut in two.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Leaf { radix: u64 },
    Cut { radix: u64, high: Box<Node>, low: Box<Node> },
}

/// An axis and its digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    root: Node,
    leaves: Vec<Leaf>,
}

impl Tree {
    /// An axis of `radix` values (at least 1) as one digit.
    #[must_use]
    pub fn whole(radix: u64) -> Self {
        let radix = radix.max(1);
        Self { root: Node::Leaf { radix }, leaves: vec![Leaf { radix, z: 1 }] }
    }

    /// The number of values of the axis.
    #[must_use]
    pub fn radix(&self) -> u64 {
        self.root.radix()
    }

    /// The digits, from the lowest.
    #[must_use]
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// A digit. One that is not there has a single value, which changes nothing.
    #[must_use]
    pub fn leaf(&self, index: usize) -> Leaf {
        self.leaves.get(index).copied().unwrap_or(Leaf { radix: 1, z: 1 })
    }

    /// Cuts digit `leaf` so that its lower part has radix `low`; the higher part becomes digit
    /// `leaf + 1`. Nothing happens, and the answer is false, unless 1 < `low` < radix.
    pub fn cut(&mut self, leaf: usize, low: u64) -> bool {
        let radix = self.leaf(leaf).radix;
        if low <= 1 || low >= radix {
            return false;
        }
        let mut remaining = leaf;
        if let Some(node) = self.root.find(&mut remaining) {
            *node = Node::Cut {
                radix,
                high: Box::new(Node::Leaf { radix: radix.div_ceil(low) }),
                low: Box::new(Node::Leaf { radix: low }),
            };
        }
        self.leaves.clear();
        self.root.collect(1, &mut self.leaves);
        true
    }

    /// Whether every setting of the digits exists.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.root.is_exact()
    }

    /// The number of values of digit `leaf` that exist where `kappa` values of the axis share the
    /// digits above it.
    #[must_use]
    pub fn values(&self, leaf: usize, kappa: u64) -> u64 {
        kappa.div_ceil(self.leaf(leaf).z)
    }

    /// κ: how many values of the axis share the digits down to `leaf`, which is `value`, where
    /// `kappa` share those above it (Lemma 10). `value` must exist.
    #[must_use]
    pub fn kappa(&self, leaf: usize, kappa: u64, value: u64) -> u64 {
        let z = self.leaf(leaf).z;
        z.min(kappa.saturating_sub(value.saturating_mul(z)))
    }

    /// maxSize: how many values have only zeros in the digits that are not `inside`. That is the
    /// most that share any setting of those digits.
    pub fn max_size(&self, inside: &impl Fn(usize) -> bool) -> u64 {
        let mut count = 0;
        self.root.count(self.radix(), &mut count, inside)
    }
}

impl Node {
    const fn radix(&self) -> u64 {
        match self {
            Self::Leaf { radix } | Self::Cut { radix, .. } => *radix,
        }
    }

    /// The leaf with this number from the lowest; counts `remaining` down on the way.
    fn find(&mut self, remaining: &mut usize) -> Option<&mut Self> {
        if matches!(self, Self::Leaf { .. }) {
            let here = *remaining == 0;
            *remaining = remaining.wrapping_sub(1);
            return here.then_some(self);
        }
        let Self::Cut { high, low, .. } = self else { return None };
        match low.find(remaining) {
            None => high.find(remaining),
            found => found,
        }
    }

    /// z(root) = 1; z(high) = z · rad(low), z(low) = z (Lemma 9).
    fn collect(&self, z: u64, leaves: &mut Vec<Leaf>) {
        match self {
            Self::Leaf { radix } => leaves.push(Leaf { radix: *radix, z }),
            Self::Cut { high, low, .. } => {
                low.collect(z, leaves);
                high.collect(z.saturating_mul(low.radix()), leaves);
            }
        }
    }

    fn is_exact(&self) -> bool {
        match self {
            Self::Leaf { .. } => true,
            Self::Cut { radix, high, low } => {
                high.radix().checked_mul(low.radix()) == Some(*radix)
                    && high.is_exact()
                    && low.is_exact()
            }
        }
    }

    /// The number of the `size` values of this node that have only zeros outside the set. `leaf` is
    /// the number of its lowest leaf, and afterwards of the first leaf above it.
    fn count(&self, size: u64, leaf: &mut usize, inside: &impl Fn(usize) -> bool) -> u64 {
        match self {
            Self::Leaf { .. } => {
                let index = *leaf;
                *leaf += 1;
                if inside(index) { size } else { size.min(1) }
            }
            Self::Cut { high, low, .. } => {
                let (quotient, rest) = (size / low.radix(), size % low.radix());
                let first = *leaf;
                let full = low.count(low.radix(), leaf, inside);
                let middle = *leaf;
                let above = high.count(quotient, leaf, inside);
                let mut again = first;
                let partial = low.count(rest, &mut again, inside);
                // The last, short group has the high value `quotient`.
                let mut number = middle;
                let last = high.only_zeros_outside(quotient, &mut number, inside);
                above.saturating_mul(full).saturating_add(if last { partial } else { 0 })
            }
        }
    }

    /// Whether this value of the node has only zeros outside the set.
    fn only_zeros_outside(
        &self,
        value: u64,
        leaf: &mut usize,
        inside: &impl Fn(usize) -> bool,
    ) -> bool {
        match self {
            Self::Leaf { .. } => {
                let index = *leaf;
                *leaf += 1;
                value == 0 || inside(index)
            }
            Self::Cut { high, low, .. } => {
                let below = low.only_zeros_outside(value % low.radix(), leaf, inside);
                let above = high.only_zeros_outside(value / low.radix(), leaf, inside);
                below && above
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tree with up to `cuts` cuts of a radix.
    fn trees(radix: u64, cuts: usize) -> Vec<Tree> {
        let mut all = vec![Tree::whole(radix)];
        let mut last = all.clone();
        for _ in 0..cuts {
            let mut next = Vec::new();
            for tree in &last {
                for leaf in 0..tree.leaves().len() {
                    for low in 2..tree.leaf(leaf).radix {
                        let mut tree = tree.clone();
                        assert!(tree.cut(leaf, low));
                        next.push(tree);
                    }
                }
            }
            all.extend_from_slice(&next);
            last = next;
        }
        all
    }

    /// The digits of a value, from the lowest, by the definition alone.
    fn digits(node: &Node, value: u64, out: &mut Vec<u64>) {
        match node {
            Node::Leaf { .. } => out.push(value),
            Node::Cut { high, low, .. } => {
                digits(low, value % low.radix(), out);
                digits(high, value / low.radix(), out);
            }
        }
    }

    fn settings(tree: &Tree) -> Vec<Vec<u64>> {
        let of = |value| {
            let mut out = Vec::new();
            digits(&tree.root, value, &mut out);
            out
        };
        (0..tree.radix()).map(of).collect()
    }

    #[test]
    fn kappa_values_and_max_size_agree_with_counting() {
        let mut checked = 0;
        for radix in 1..=18 {
            for tree in trees(radix, 3) {
                let all = settings(&tree);
                let count = tree.leaves().len();
                for (value, setting) in (0_u64..).zip(&all) {
                    let weighted: u64 =
                        setting.iter().zip(tree.leaves()).map(|(x, leaf)| x * leaf.z).sum();
                    assert_eq!(weighted, value);
                    let mut kappa = radix;
                    for leaf in (0..count).rev() {
                        let above = |s: &&Vec<u64>| s[leaf + 1..] == setting[leaf + 1..];
                        let sharing = all.iter().filter(above);
                        let most = sharing.map(|s| s[leaf]).max().unwrap();
                        assert_eq!(tree.values(leaf, kappa), most + 1);
                        kappa = tree.kappa(leaf, kappa, setting[leaf]);
                        let sharing = all.iter().filter(|s| s[leaf..] == setting[leaf..]).count();
                        assert_eq!(kappa, sharing as u64, "{tree:?} {setting:?} {leaf}");
                        checked += 1;
                    }
                }
                for set in 0..1_u32 << count {
                    let inside = |leaf: usize| set >> leaf & 1 == 1;
                    let zero = |s: &&Vec<u64>| (0..count).all(|leaf| inside(leaf) || s[leaf] == 0);
                    let expected = all.iter().filter(zero).count() as u64;
                    assert_eq!(tree.max_size(&inside), expected, "{tree:?} {set:b}");
                }
            }
        }
        assert!(checked > 100_000, "{checked}");
    }

    #[test]
    fn max_size_is_the_most_that_share_a_setting() {
        for tree in trees(13, 2) {
            let all = settings(&tree);
            let count = tree.leaves().len();
            for set in 0..1_u32 << count {
                let inside = |leaf: usize| set >> leaf & 1 == 1;
                let mut shared = std::collections::BTreeMap::<Vec<u64>, u64>::new();
                for setting in &all {
                    let outside = |leaf: &usize| !inside(*leaf);
                    let key = (0..count).filter(outside).map(|leaf| setting[leaf]).collect();
                    *shared.entry(key).or_default() += 1;
                }
                assert_eq!(tree.max_size(&inside), *shared.values().max().unwrap());
            }
        }
    }

    /// The thesis's figure 3.5: 13 as (3, (2, 3)) and as ((3, 2), 3).
    #[test]
    fn trees_with_the_same_radices_differ() {
        let mut low_cut = Tree::whole(13);
        assert!(low_cut.cut(0, 5) && low_cut.cut(0, 3));
        let mut high_cut = Tree::whole(13);
        assert!(high_cut.cut(0, 3) && high_cut.cut(1, 2));
        let radices = |tree: &Tree| tree.leaves().iter().map(|l| l.radix).collect::<Vec<_>>();
        assert_eq!(radices(&low_cut), [3, 2, 3]);
        assert_eq!(radices(&high_cut), [3, 2, 3]);
        assert_eq!(low_cut.kappa(2, 13, 1), 5);
        assert_eq!(high_cut.kappa(2, 13, 1), 6);
        assert!(!low_cut.is_exact());
        // (5 as (2, 3) is short as well: at 0, 1 only two are left.)
        assert_eq!(low_cut.kappa(1, 5, 1), 2);
    }

    #[test]
    fn what_cannot_be_cut_stays() {
        let mut tree = Tree::whole(7);
        assert!(!tree.cut(0, 1) && !tree.cut(0, 7) && !tree.cut(1, 2));
        assert_eq!(tree, Tree::whole(7));
        let mut exact = Tree::whole(12);
        assert!(exact.cut(0, 4) && exact.is_exact());
    }
}
