//! `--sweep`: options that are varied, as every combination of their values.

/// One option with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) name: String,
    pub(super) values: Vec<String>,
}

/// Reads `op=7,14,28`; the error is the reason.
pub(super) fn axis(text: &str) -> Result<Axis, String> {
    let wrong = || format!("--sweep takes OPTION=A,B,… such as op=7,14,28, not '{text}'");
    let (name, values) = text.split_once('=').ok_or_else(wrong)?;
    let values: Vec<_> = values.split(',').map(|value| value.trim().to_owned()).collect();
    if name.is_empty() || values.iter().any(String::is_empty) {
        return Err(wrong());
    }
    Ok(Axis { name: name.trim().to_owned(), values })
}

/// Every combination, the last axis changing fastest; one that is empty where there is no axis.
pub(super) fn points(axes: &[Axis]) -> Vec<Vec<(&str, &str)>> {
    let mut points = vec![Vec::new()];
    for axis in axes {
        let extended = points.iter().flat_map(|point| {
            axis.values.iter().map(move |value| {
                let mut point: Vec<(&str, &str)> = point.clone();
                point.push((&axis.name, value));
                point
            })
        });
        points = extended.collect();
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_vary_the_last_axis_fastest() {
        let axes = [axis("gc=greedy,fifo").unwrap(), axis("op=7, 14").unwrap()];
        let found: Vec<_> = points(&axes);
        assert_eq!(found.len(), 4);
        assert_eq!(found[1], [("gc", "greedy"), ("op", "14")]);
        assert_eq!(found[2], [("gc", "fifo"), ("op", "7")]);
        assert_eq!(points(&[]), [vec![]]);
    }

    #[test]
    fn what_is_no_sweep_is_refused() {
        for wrong in ["op", "=7", "op=", "op=7,,14"] {
            assert!(axis(wrong).unwrap_err().contains(wrong));
        }
    }
}
