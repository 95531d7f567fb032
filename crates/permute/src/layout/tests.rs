use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::pattern::Pattern;
use crate::resolve::resolve;

/// Every index of a shape, the last dimension fastest.
fn indices(shape: &[u64]) -> Vec<Vec<u64>> {
    let mut all = vec![Vec::new()];
    for size in shape {
        all = all
            .into_iter()
            .flat_map(|head: Vec<u64>| (0..*size).map(move |x| [head.clone(), vec![x]].concat()))
            .collect();
    }
    all
}

/// The indices in the order of a file.
fn in_order(shape: &[u64], arrangement: Arrangement<'_>) -> Vec<Vec<u64>> {
    let mut all = indices(shape);
    match arrangement {
        Arrangement::Flat { is_fortran: false } => {}
        Arrangement::Flat { is_fortran: true } => {
            all.sort_by_key(|index| index.iter().rev().copied().collect::<Vec<u64>>());
        }
        Arrangement::Chunks { sizes, inner } => all.sort_by_key(|index| {
            let grid: Vec<u64> = index.iter().zip(sizes).map(|(x, size)| x / size).collect();
            let inside: Vec<u64> = inner.iter().map(|dim| index[*dim] % sizes[*dim]).collect();
            (grid, inside)
        }),
    }
    all
}

/// The address of an index of one side, in an order of that side's digits.
fn address(layout: &Layout, side: usize, order: &[Digit], index: &[u64]) -> u64 {
    let mut setting: Vec<Vec<u64>> =
        layout.space.trees.iter().map(|tree| vec![0; tree.leaves().len()]).collect();
    for (dim, x) in index.iter().enumerate() {
        let weights = layout.weights(side, dim);
        let mut rest = *x;
        for (digit, weight) in layout.sides[side][dim].iter().zip(&weights).rev() {
            setting[digit.tree][digit.leaf] = rest / weight;
            rest %= weight;
        }
    }
    layout.space.address(order, &setting)
}

/// Cuts as `arranged` does, and checks both orders, record by record.
fn check(layout: &Layout, shapes: [&[u64]; 2], arrangements: [Arrangement<'_>; 2]) -> bool {
    let Some(arranged) = layout.arranged(arrangements[0], arrangements[1]) else { return false };
    let mut cut = layout.clone();
    for (side, arrangement) in arrangements.iter().enumerate() {
        if let Arrangement::Chunks { sizes, .. } = arrangement {
            for (dim, size) in sizes.iter().enumerate() {
                cut.cut(side, dim, *size).unwrap();
            }
        }
    }
    let orders = [&arranged.task.input, &arranged.task.output];
    let inner = [arranged.inner_input, arranged.inner_output];
    for side in 0..2 {
        let expected = in_order(shapes[side], arrangements[side]);
        for (at, index) in (0..).zip(&expected) {
            assert_eq!(address(&cut, side, orders[side], index), at, "{layout:?} {index:?}");
        }
        if let Arrangement::Chunks { sizes, .. } = arrangements[side] {
            let count = inner[side].unwrap();
            let inside = &orders[side][..count];
            let sizes = sizes.iter().zip(shapes[side]).map(|(size, all)| size.min(all));
            let records = arranged.task.space.max_size(|digit| inside.contains(&digit));
            assert_eq!(records, sizes.product::<u64>());
        } else {
            assert_eq!(inner[side], None);
        }
    }
    true
}

fn shuffled(count: usize) -> impl Strategy<Value = Vec<usize>> {
    Just((0..count).collect::<Vec<usize>>()).prop_shuffle()
}

proptest! {
    #[test]
    fn files_hold_records_where_chunks_put_them(
        (shape, sizes, inner, fortran) in (1..4_usize).prop_flat_map(|count| (
            prop::collection::vec(1..14_u64, count),
            [prop::collection::vec(1..16_u64, count), prop::collection::vec(1..16_u64, count)],
            [shuffled(count), shuffled(count)],
            any::<[bool; 4]>(),
        )),
    ) {
        let arrangement = |side: usize| if fortran[side] {
            Arrangement::Flat { is_fortran: fortran[side + 2] }
        } else {
            Arrangement::Chunks { sizes: &sizes[side], inner: &inner[side] }
        };
        let layout = Layout::identity(&shape);
        let done = check(&layout, [&shape, &shape], [arrangement(0), arrangement(1)]);
        let multiple = |(a, b): (&u64, &u64)| a.is_multiple_of(*b) || b.is_multiple_of(*a);
        prop_assert!(
            done || !(fortran[0] || fortran[1] || sizes[0].iter().zip(&sizes[1]).all(multiple))
        );
    }
}

#[test]
fn patterns_and_chunks_together() {
    for (text, shape, result, tile, chunks, fits) in [
        ("h w -> w h", [12, 10], vec![10, 12], None, [vec![4, 5], vec![10, 4]], true),
        ("h w -> w h", [13, 10], vec![10, 13], None, [vec![4, 3], vec![6, 8]], true),
        ("h w -> w h", [13, 10], vec![10, 13], None, [vec![4, 3], vec![4, 8]], false),
        ("h w -> (w h)", [6, 10], vec![60], None, [vec![3, 5], vec![30]], true),
        ("h w -> (w h)", [6, 10], vec![60], None, [vec![3, 5], vec![3]], true),
        ("h w -> (w h)", [6, 10], vec![60], None, [vec![3, 5], vec![4]], false),
        ("(h t) w -> h w t", [12, 2], vec![3, 2, 4], Some(4), [vec![4, 1], vec![1, 1, 2]], true),
        ("(h t) w -> h w t", [12, 2], vec![3, 2, 4], Some(4), [vec![8, 1], vec![1, 1, 4]], true),
        ("(h t) w -> h w t", [12, 2], vec![3, 2, 4], Some(4), [vec![3, 1], vec![1, 1, 4]], false),
        ("(h t) w -> w (h t)", [12, 2], vec![2, 12], Some(4), [vec![8, 1], vec![1, 2]], true),
        ("1 h -> h", [1, 5], vec![5], None, [vec![1, 2], vec![4]], true),
    ] {
        let pattern = Pattern::parse(text).unwrap();
        let sizes: BTreeMap<String, u64> =
            tile.map(|size| ("t".to_owned(), size)).into_iter().collect();
        let resolved = resolve(&pattern, &shape, false, &sizes).unwrap();
        assert_eq!(resolved.shape.as_ref(), Some(&result));
        let layout = Layout::of(&resolved).unwrap();
        let inner: Vec<usize> = (0..result.len()).collect();
        let arrangements = [
            Arrangement::Chunks { sizes: &chunks[0], inner: &[1, 0] },
            Arrangement::Chunks { sizes: &chunks[1], inner: &inner },
        ];
        let found = check(&layout, [&shape, &result], arrangements);
        assert_eq!(found, fits, "{text} {shape:?} {chunks:?}");
    }
}

#[test]
fn flipped_axes_are_parted_where_chunks_divide_them() {
    let pattern = Pattern::parse("h w -> -w h").unwrap();
    let flat = Arrangement::Flat { is_fortran: false };
    for (width, input, output, flips) in
        [(12, Some(4), Some(2), Some(3)), (12, Some(5), None, None), (12, None, Some(5), Some(1))]
    {
        let resolved = resolve(&pattern, &[6, width], false, &BTreeMap::new()).unwrap();
        let layout = Layout::of(&resolved).unwrap();
        let left = input.map(|size| [3, size]);
        let right = output.map(|size| [size, 6]);
        let input =
            left.as_ref().map_or(flat, |sizes| Arrangement::Chunks { sizes, inner: &[0, 1] });
        let output =
            right.as_ref().map_or(flat, |sizes| Arrangement::Chunks { sizes, inner: &[0, 1] });
        let arranged = layout.arranged(input, output);
        let found = arranged.map(|a| a.task.flips.iter().filter(|flip| **flip).count());
        assert_eq!(found, flips, "{left:?} {right:?}");
    }
}
