//! Iterative walks over recorded chains of any depth.
//!
//! A chain of steps can be as long as a run, and exceeding a thread's stack ends the whole process.
//! Code that follows recorded data therefore keeps what is still to be visited in a list.

/// Visits a thing and all it leads to, each before what it leads to, in the order in which a
/// recursive walk would. `visit` gives what a thing leads to; that each is visited once is its own
/// business.
pub(super) fn depth_first<T>(first: T, mut visit: impl FnMut(T) -> Vec<T>) {
    let mut open = vec![first];
    while let Some(next) = open.pop() {
        open.extend(visit(next).into_iter().rev());
    }
}

#[cfg(test)]
mod tests {
    use super::depth_first;

    #[test]
    fn a_walk_visits_in_the_order_of_a_recursive_one() {
        let mut seen = Vec::new();
        depth_first(1, |at| {
            seen.push(at);
            match at {
                1 => vec![2, 5],
                2 => vec![3, 4],
                _ => Vec::new(),
            }
        });
        assert_eq!(seen, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_walk_over_a_million_links_needs_no_stack() {
        let mut last = 0u32;
        depth_first(0, |at| {
            last = at;
            (at < 1_000_000).then_some(at + 1).into_iter().collect()
        });
        assert_eq!(last, 1_000_000);
    }
}
