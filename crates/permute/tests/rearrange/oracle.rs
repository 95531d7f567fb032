//! The meaning of a pattern, worked out record by record.

use std::collections::BTreeMap;

use esker_permute::npy::Header;

/// A small generator of numbers (SplitMix64), the same on every machine.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            items.swap(index, self.below(index as u64 + 1) as usize);
        }
    }
}

/// An axis with a name; a tile has a grid that comes just before it, in the same dimension.
#[derive(Clone, Debug)]
struct Axis {
    name: String,
    size: u64,
    /// The size of the whole dimension, if this is its tile and does not divide it.
    tile_of: Option<u64>,
    is_flipped: bool,
}

/// A pattern and an array.
#[derive(Clone, Debug)]
pub struct Case {
    axes: Vec<Axis>,
    /// Dimensions of the array, as axes.
    left: Vec<Vec<usize>>,
    /// Dimensions of the result.
    right: Vec<Vec<usize>>,
    item: u64,
    is_fortran: bool,
}

const SIZES: [u64; 12] = [1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 31, 64];
const ITEMS: [u64; 9] = [1, 2, 3, 4, 8, 12, 16, 5, 1000];

impl Case {
    /// Anything of at most about `bytes`.
    pub fn random(random: &mut Random, bytes: u64) -> Self {
        let item = ITEMS[random.below(if bytes > 100_000 { 9 } else { 8 }) as usize];
        let is_ragged = random.chance(4);
        let mut left: Vec<Vec<usize>> = Vec::new();
        let mut axes: Vec<Axis> = Vec::new();
        let mut items = bytes / item;
        for _ in 0..1 + random.below(6) {
            let mut size = SIZES[random.below(12) as usize];
            if random.chance(3) {
                size = 1 + random.below(items.clamp(1, 900));
            }
            let size = size.min(items).max(1);
            items /= size;
            let name = format!("a{}", axes.len());
            if is_ragged && size > 2 && random.chance(2) {
                let tile = 2 + random.below(size - 2);
                let grid = Axis {
                    name: name.clone(),
                    size: size.div_ceil(tile),
                    tile_of: None,
                    is_flipped: false,
                };
                let whole = (!size.is_multiple_of(tile)).then_some(size);
                let inner =
                    Axis { name: name + "t", size: tile, tile_of: whole, is_flipped: false };
                left.push(vec![axes.len(), axes.len() + 1]);
                axes.extend([grid, inner]);
            } else {
                let is_flipped = random.chance(4);
                if !left.is_empty() && random.chance(3) && !is_ragged {
                    left.last_mut().unwrap().push(axes.len());
                } else {
                    left.push(vec![axes.len()]);
                }
                axes.push(Axis { name, size, tile_of: None, is_flipped });
            }
        }
        let mut order: Vec<usize> = (0..axes.len()).collect();
        random.shuffle(&mut order);
        // A tile that is short stays behind its grid.
        for (index, axis) in axes.iter().enumerate() {
            if axis.tile_of.is_some() {
                let place = |axis: usize| order.iter().position(|other| *other == axis).unwrap();
                let (grid, tile) = (place(index - 1), place(index));
                if grid > tile {
                    order.swap(grid, tile);
                }
            }
        }
        let mut right: Vec<Vec<usize>> = Vec::new();
        for axis in order {
            match right.last_mut() {
                Some(group) if random.chance(3) => group.push(axis),
                _ => right.push(vec![axis]),
            }
        }
        let is_fortran = random.chance(4);
        Self { axes, left, right, item, is_fortran }
    }

    /// Three to five axes in another order, the lowest of which goes up: what takes filtered reads
    /// or several passes where memory is small.
    pub fn turned(random: &mut Random, bytes: u64) -> Self {
        let item = ITEMS[random.below(8) as usize];
        let count = 3 + random.below(3);
        let items = bytes as f64 / item as f64;
        let side = items.powf(1.0 / count as f64);
        let axis = |number: u64, random: &mut Random| Axis {
            name: format!("a{number}"),
            size: (side * (0.6 + random.below(80) as f64 / 100.0)) as u64 + 1,
            tile_of: None,
            is_flipped: random.chance(6),
        };
        let axes: Vec<Axis> = (0..count).map(|number| axis(number, random)).collect();
        let mut order: Vec<usize> = (0..axes.len()).rev().collect();
        if random.chance(2) {
            random.shuffle(&mut order[1..]);
        }
        let alone = |axis: usize| vec![axis];
        Self {
            left: (0..axes.len()).map(alone).collect(),
            right: order.into_iter().map(alone).collect(),
            axes,
            item,
            is_fortran: false,
        }
    }

    pub fn transpose(rows: u64, columns: u64, item: u64) -> Self {
        let axis =
            |name: &str, size| Axis { name: name.into(), size, tile_of: None, is_flipped: false };
        Self {
            axes: vec![axis("h", rows), axis("w", columns)],
            left: vec![vec![0], vec![1]],
            right: vec![vec![1], vec![0]],
            item,
            is_fortran: false,
        }
    }

    pub fn pattern(&self) -> String {
        let side = |groups: &[Vec<usize>], is_right: bool| {
            let group = |group: &Vec<usize>| {
                let names: Vec<String> = group
                    .iter()
                    .map(|axis| {
                        let axis = &self.axes[*axis];
                        let sign = if is_right && axis.is_flipped { "-" } else { "" };
                        format!("{sign}{}", axis.name)
                    })
                    .collect();
                if names.len() == 1 { names[0].clone() } else { format!("({})", names.join(" ")) }
            };
            groups.iter().map(group).collect::<Vec<_>>().join(" ")
        };
        format!("{} -> {}", side(&self.left, false), side(&self.right, true))
    }

    pub fn sizes(&self) -> BTreeMap<String, u64> {
        let mut sizes = BTreeMap::new();
        for group in self.left.iter().filter(|group| group.len() > 1) {
            for axis in &group[1..] {
                sizes.insert(self.axes[*axis].name.clone(), self.axes[*axis].size);
            }
        }
        sizes
    }

    fn dimension(&self, group: &[usize]) -> u64 {
        let whole = group.iter().find_map(|axis| self.axes[*axis].tile_of);
        whole.unwrap_or_else(|| group.iter().map(|axis| self.axes[*axis].size).product())
    }

    pub fn header(&self) -> Header {
        Header {
            descr: if self.item == 8 { ">f8".into() } else { format!("|V{}", self.item) },
            item_bytes: self.item,
            is_fortran: self.is_fortran,
            shape: self.left.iter().map(|group| self.dimension(group)).collect(),
        }
    }

    fn count(&self) -> u64 {
        self.left.iter().map(|group| self.dimension(group)).product()
    }

    /// Items that tell where they were.
    pub fn items(&self) -> Vec<u8> {
        let mut random = Random::new(self.count());
        (0..self.count() * self.item).map(|_| random.next() as u8).collect()
    }

    /// The shape of the result; `None` if it is ragged.
    pub fn shape(&self) -> Option<Vec<u64>> {
        (self.output_name() == "to.npy")
            .then(|| self.right.iter().map(|group| self.group_size(group)).collect())
    }

    fn group_size(&self, group: &[usize]) -> u64 {
        group.iter().map(|axis| self.axes[*axis].size).product()
    }

    /// Whether some tiles do not divide their dimension.
    pub fn has_short_tiles(&self) -> bool {
        (0..self.axes.len()).any(|axis| {
            let tile = &self.axes[axis];
            tile.tile_of.is_some_and(|whole| whole != self.axes[axis - 1].size * tile.size)
        })
    }

    /// Raw where tiles are short: no other file can hold them.
    pub fn output_name(&self) -> &'static str {
        if self.has_short_tiles() { "to.raw" } else { "to.npy" }
    }

    /// The items of the result: its indices in order, each looked up.
    pub fn expected(&self, items: &[u8]) -> Vec<u8> {
        let order: Vec<usize> = self.right.iter().flatten().copied().collect();
        let mut result = Vec::with_capacity(items.len());
        let mut index = vec![0; self.axes.len()];
        loop {
            if let Some(at) = self.offset(&index) {
                let at = (at * self.item) as usize;
                result.extend_from_slice(&items[at..at + self.item as usize]);
            }
            let mut moved = false;
            for axis in order.iter().rev() {
                index[*axis] += 1;
                if index[*axis] < self.axes[*axis].size {
                    moved = true;
                    break;
                }
                index[*axis] = 0;
            }
            if !moved {
                return result;
            }
        }
    }

    /// Where an item lies in the array; `None` past the end of a short tile.
    fn offset(&self, index: &[u64]) -> Option<u64> {
        let mut places = Vec::new();
        for group in &self.left {
            let mut place = 0;
            for axis in group {
                let Axis { size, is_flipped, .. } = self.axes[*axis];
                let value = if is_flipped { size - 1 - index[*axis] } else { index[*axis] };
                place = place * size + value;
            }
            let size = self.dimension(group);
            if place >= size {
                return None;
            }
            places.push((place, size));
        }
        if self.is_fortran {
            places.reverse();
        }
        Some(places.iter().fold(0, |offset, (place, size)| offset * size + place))
    }
}
