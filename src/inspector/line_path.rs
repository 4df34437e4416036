//! Lines of a layout as paths of SVG.

use std::fmt::Write as _;

/// The direction in which the lines of a drawing run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineDirection {
    Down,
    Across,
}

/// The path of a line: straight from the first point of each pair to the second, and curved between pairs.
pub(crate) fn line_path(points: &[(u32, u32)], direction: LineDirection) -> String {
    let mut path = String::new();
    let mut last: Option<(u32, u32)> = None;
    for pair in points.chunks_exact(2) {
        let [(x, y), (to_x, to_y)] = [pair[0], pair[1]];
        // Writing to a string does not fail.
        let _ = match (last, direction) {
            (None, _) => write!(path, "M{x} {y}"),
            (Some((from, _)), LineDirection::Down) if from == x => Ok(()),
            (Some((_, from)), LineDirection::Across) if from == y => Ok(()),
            (Some((from, above)), LineDirection::Down) => {
                let half = above.midpoint(y);
                write!(path, "C{from} {half} {x} {half} {x} {y}")
            }
            (Some((before, from)), LineDirection::Across) => {
                let half = before.midpoint(x);
                write!(path, "C{half} {from} {half} {y} {x} {y}")
            }
        };
        let _ = match direction {
            LineDirection::Down => write!(path, "V{to_y}"),
            LineDirection::Across => write!(path, "H{to_x}"),
        };
        last = Some((to_x, to_y));
    }
    path
}
