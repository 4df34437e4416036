//! The order of steps: a graph without cycles, and its layers (decisions S2 and T4).

use super::expression::Root;

/// The reason why steps have no order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// A step waits for one that does not exist.
    #[error("step {step:?} needs {needs:?}, which does not exist")]
    Unknown {
        /// The step.
        step: String,
        /// The step that it needs.
        needs: String,
    },
    /// Steps wait for one another; the path begins and ends with the same one.
    #[error("steps wait for one another: {}", path.join(" -> "))]
    Cycle {
        /// As in `a -> b -> a`: each needs the next.
        path: Vec<String>,
    },
}

/// The ids of the steps among these names.
pub fn step_ids<'r>(roots: impl IntoIterator<Item = &'r Root>) -> impl Iterator<Item = &'r str> {
    roots.into_iter().filter_map(|root| match root {
        Root::Step(id) => Some(id.as_str()),
        Root::Params
        | Root::Env(_)
        | Root::Item
        | Root::ItemIndex
        | Root::Resume
        | Root::Name(_) => None,
    })
}

/// The layers of named steps: each step is in the first layer after everything it needs. Within a
/// layer the given order stays.
pub fn layers(steps: &[(String, Vec<String>)]) -> Result<Vec<Vec<String>>, GraphError> {
    let mut needs = Vec::with_capacity(steps.len());
    for (id, wanted) in steps {
        let places = wanted.iter().map(|need| {
            let place = steps.iter().position(|(other, _)| other == need);
            place.ok_or_else(|| GraphError::Unknown {
                step: id.clone(),
                needs: need.clone(),
            })
        });
        needs.push(places.collect::<Result<Vec<_>, _>>()?);
    }
    let name = |place: usize| steps[place].0.clone();
    match order(&needs) {
        Ok(layers) => Ok(layers
            .into_iter()
            .map(|layer| layer.into_iter().map(name).collect())
            .collect()),
        Err(cycle) => Err(GraphError::Cycle {
            path: cycle.into_iter().map(name).collect(),
        }),
    }
}

/// An order in which each position follows those it needs; if there is none, the given order.
pub fn order_or_as_given(needs: &[Vec<usize>]) -> Vec<usize> {
    match order(needs) {
        Ok(layers) => layers.into_iter().flatten().collect(),
        Err(_) => (0..needs.len()).collect(),
    }
}

/// The layers of steps by position, or a cycle that begins and ends with the same position.
/// Positions beyond the end count as met.
pub fn order(needs: &[Vec<usize>]) -> Result<Vec<Vec<usize>>, Vec<usize>> {
    let mut open = vec![0usize; needs.len()];
    let mut dependants = vec![Vec::new(); needs.len()];
    for (step, wanted) in needs.iter().enumerate() {
        for need in wanted {
            if let Some(list) = dependants.get_mut(*need) {
                list.push(step);
                open[step] += 1;
            }
        }
    }
    let mut layers = Vec::new();
    let mut layer: Vec<usize> = (0..needs.len()).filter(|step| open[*step] == 0).collect();
    let mut placed = 0;
    while !layer.is_empty() {
        placed += layer.len();
        let mut next = Vec::new();
        for step in &layer {
            for dependant in &dependants[*step] {
                open[*dependant] -= 1;
                if open[*dependant] == 0 {
                    next.push(*dependant);
                }
            }
        }
        next.sort_unstable();
        layers.push(std::mem::replace(&mut layer, next));
    }
    if placed == needs.len() {
        Ok(layers)
    } else {
        Err(cycle(needs, &open))
    }
}

/// The most levels of children below a workflow: as many as a path to one may have.
pub const MAX_LEVELS: usize = 16;
/// The most scopes of a run, its own and those of all children of children.
pub const MAX_SCOPES: usize = 10_000;

/// The size of a workflow once every child is put in its place. A few small files that call one
/// another often grow without bound: ten calls of ten calls, five files deep, are 11,111 scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expansion {
    /// The levels of children below it.
    pub levels: usize,
    /// Its own scope and those of its children; the largest number stands for all beyond it.
    pub scopes: usize,
}

impl Expansion {
    /// Returns `true` if it is more than a run may be.
    pub fn is_too_large(self) -> bool {
        self.levels > MAX_LEVELS || self.scopes > MAX_SCOPES
    }
}

/// The expansion of every workflow, by position, from the positions of the children each calls;
/// none if they call one another in a circle. Positions beyond the end count as nothing.
pub fn expansions(children: &[Vec<usize>]) -> Option<Vec<Expansion>> {
    let alone = Expansion {
        levels: 0,
        scopes: 1,
    };
    let mut sizes = vec![alone; children.len()];
    for workflow in order(children).ok()?.into_iter().flatten() {
        let called = children[workflow]
            .iter()
            .filter_map(|child| sizes.get(*child));
        sizes[workflow] = called.fold(alone, |sum, child| Expansion {
            levels: sum.levels.max(child.levels + 1),
            scopes: sum.scopes.saturating_add(child.scopes),
        });
    }
    Some(sizes)
}

/// Among the steps that were never free there is a cycle: walk along needs until one comes again.
fn cycle(needs: &[Vec<usize>], open: &[usize]) -> Vec<usize> {
    let stuck = |step: &usize| open.get(*step).is_some_and(|open| *open > 0);
    let mut path: Vec<usize> = Vec::new();
    let mut at = (0..needs.len()).find(stuck);
    while let Some(step) = at {
        if let Some(first) = path.iter().position(|seen| *seen == step) {
            path.drain(..first);
            path.push(step);
            return path;
        }
        path.push(step);
        at = needs[step].iter().copied().find(stuck);
    }
    path
}

/// The positions that lead back to themselves: in each list all that reach one another, ascending.
/// Positions beyond the end count as nothing. Costs as much as there are positions and edges.
pub fn circles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let known = |to: &usize| *to < edges.len();
    let mut into = vec![Vec::new(); edges.len()];
    for (from, list) in edges.iter().enumerate() {
        for to in list.iter().copied().filter(known) {
            into[to].push(from);
        }
    }
    // Kosaraju: what is left last going forward, is the first to go backward from.
    let mut left = Vec::with_capacity(edges.len());
    let mut seen = vec![false; edges.len()];
    for start in 0..edges.len() {
        walk(edges, start, &mut seen, &mut left);
    }
    let mut seen = vec![false; edges.len()];
    let mut found = Vec::new();
    for start in left.into_iter().rev() {
        let mut together = Vec::new();
        walk(&into, start, &mut seen, &mut together);
        let alone = matches!(together.as_slice(), [one] if !edges[*one].contains(one));
        if !together.is_empty() && !alone {
            together.sort_unstable();
            found.push(together);
        }
    }
    found.sort_unstable();
    found
}

/// Goes to everything that is reached from a position and not seen yet; lists it as it is left.
fn walk(edges: &[Vec<usize>], start: usize, seen: &mut [bool], left: &mut Vec<usize>) {
    if std::mem::replace(&mut seen[start], true) {
        return;
    }
    let mut path = vec![(start, 0)];
    while let Some((at, next)) = path.last_mut() {
        match edges[*at].get(*next).copied() {
            Some(to) => {
                *next += 1;
                if to < edges.len() && !std::mem::replace(&mut seen[to], true) {
                    path.push((to, 0));
                }
            }
            None => {
                left.push(*at);
                path.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_circles_are_found_and_what_leads_to_them_is_not_in_them() {
        let edges = |all: &[&[usize]]| -> Vec<Vec<usize>> {
            all.iter().map(|list| list.to_vec()).collect()
        };
        // 0 leads to a pair, the pair to one that leads to itself, and that to nothing.
        let pair_and_one = edges(&[&[1], &[2], &[1, 3], &[3, 4], &[], &[6], &[7], &[5], &[99]]);
        assert_eq!(circles(&pair_and_one), [vec![1, 2], vec![3], vec![5, 6, 7]]);
        // Two circles with a position in common are one list.
        let joined = edges(&[&[1], &[0, 2], &[1]]);
        assert_eq!(circles(&joined), [vec![0, 1, 2]]);
        assert!(circles(&edges(&[&[1, 2], &[2], &[]])).is_empty());
        let long: Vec<Vec<usize>> = (0..100_000).map(|at| vec![(at + 1) % 100_000]).collect();
        assert_eq!(circles(&long)[0].len(), 100_000);
    }

    fn named(steps: &[(&str, &[&str])]) -> Result<Vec<Vec<String>>, GraphError> {
        let own = |(id, needs): &(&str, &[&str])| {
            (
                String::from(*id),
                needs.iter().map(|need| String::from(*need)).collect(),
            )
        };
        layers(&steps.iter().map(own).collect::<Vec<_>>())
    }

    #[test]
    fn a_cycle_is_named_from_its_own_first_step() {
        let error = named(&[("x", &["a"]), ("a", &["b"]), ("b", &["a"])]).unwrap_err();
        assert_eq!(error.to_string(), "steps wait for one another: a -> b -> a");
        assert!(named(&[("a", &["a"])]).is_err());
    }

    #[test]
    fn steps_of_a_layer_are_in_file_order() {
        let layers = named(&[("c", &["b"]), ("b", &[]), ("a", &[])]).unwrap();
        assert_eq!(layers, [vec!["b", "a"], vec!["c"]]);
    }

    #[test]
    fn an_unknown_need_is_named() {
        assert!(matches!(
            named(&[("a", &["z"])]),
            Err(GraphError::Unknown { .. })
        ));
    }

    proptest::proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        #[test]
        fn every_step_is_placed_after_its_needs_or_a_real_cycle_is_named(
            needs in proptest::collection::vec(proptest::collection::vec(0usize..8, 0..4), 0..8)
        ) {
            match order(&needs) {
                Ok(layers) => {
                    let layer_of = |step: usize| layers.iter().position(|l| l.contains(&step));
                    for (step, wanted) in needs.iter().enumerate() {
                        for need in wanted.iter().filter(|need| **need < needs.len()) {
                            proptest::prop_assert!(layer_of(*need) < layer_of(step));
                        }
                    }
                }
                Err(cycle) => {
                    proptest::prop_assert!(cycle.len() > 1 && cycle.first() == cycle.last());
                    for pair in cycle.windows(2) {
                        proptest::prop_assert!(needs[pair[0]].contains(&pair[1]));
                    }
                }
            }
        }
    }
}
