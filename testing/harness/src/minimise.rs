//! Shortens a failing history: takes out runs of steps as long as the rest still fails the same
//! way.

/// Fewer steps that still fail, for steps of any kind. Calls `fails` at most `tries_max` times.
pub fn shorten<T: Clone>(steps: &[T], tries_max: usize, fails: impl Fn(&[T]) -> bool) -> Vec<T> {
    shorten_within(steps, tries_max, &mut 0, &fails)
}

/// Takes out runs of steps, shorter and shorter ones, until `tries` has grown to `tries_max`.
pub fn shorten_within<T: Clone>(
    steps: &[T],
    tries_max: usize,
    tries: &mut usize,
    fails: &impl Fn(&[T]) -> bool,
) -> Vec<T> {
    let mut steps = steps.to_vec();
    let mut run = steps.len().div_ceil(2);
    while run > 0 && *tries < tries_max {
        let mut at = 0;
        let mut shortened = false;
        while at < steps.len() && *tries < tries_max {
            let mut shorter = steps.clone();
            shorter.drain(at..(at + run).min(steps.len()));
            *tries += 1;
            if fails(&shorter) {
                steps = shorter;
                shortened = true;
            } else {
                at += run;
            }
        }
        if !shortened || run > 1 {
            run /= 2;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_steps_that_fail_together_are_left() {
        let steps: Vec<u32> = (0..100).collect();
        let fails = |steps: &[u32]| steps.contains(&17) && steps.contains(&80);
        assert_eq!(shorten(&steps, 1_000, fails), [17, 80]);
        assert_eq!(shorten(&steps, 0, fails), steps);
    }
}
