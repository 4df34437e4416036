//! The effort of checking a value, counted before it is checked.
//!
//! A schema whose recursion reaches one definition at one place by two ways doubles the work with
//! each level of a value, so that a few hundred bytes take hours. How much of that a validator does
//! depends on what it remembers and in which order it looks. What is refused must not: it is counted
//! here, by a walk over the schema and the value together.
//!
//! - A **visit** is one subschema applied to one place of the value, as a validator without memory
//!   applies it: every branch of every combination, whatever the others say.
//! - A **pair** is a subschema and a place that are visited at least once.
//! - A **step** is one unit of what a visit costs beyond itself: a byte of text times the size of
//!   the pattern that it is held against, a value compared by `uniqueItems`, a member of an object, a
//!   name or a value that the subschema lists.
//!
//! ```text
//! builder reads a document
//! graph   the subschemas of a document, and what each applies to the same place and below
//! limits  the most of each
//! text    what a pattern or a length costs for a byte of text
//! walk    visits, pairs and steps of one value
//! ways    where a recursion comes to one definition at one place by two ways
//! ```

mod builder;
mod graph;
mod limits;
mod text;
mod walk;
mod ways;

use jsonschema::Validator;
use serde_json::Value;

pub use limits::{MAX_STEPS, MAX_VISITS, MAX_VISITS_PER_PAIR};
pub use ways::TwoWays;
pub(crate) use ways::two_ways;

use graph::Graph;
pub(crate) use limits::Measure;
use limits::{MAX_FAILURES, MAX_PAIRS, STEPS_PER_VISIT};
use walk::Count;

/// The effort of checking values against one schema.
#[derive(Debug)]
pub(crate) struct Effort {
    graph: Graph,
}

impl Effort {
    /// Of a schema that compiles. `single` compiles a schema of its own, for the patterns of names.
    pub(crate) fn of(document: &Value, single: &dyn Fn(&Value) -> Option<Validator>) -> Self {
        let graph = Graph::of(builder::read(document, single).0);
        Self { graph }
    }

    /// The reason why a value is not checked, if it is not: in our words, without what the value
    /// holds.
    pub(crate) fn refusal(&self, value: &Value, measure: Measure) -> Option<String> {
        if self.is_plain_for(value, measure) {
            return None;
        }
        let count = walk::count(&self.graph, value, MAX_PAIRS, measure);
        refused(&count, measure)
    }

    /// Returns `true` if values are counted one by one.
    pub(crate) fn is_counted(&self) -> bool {
        !self.graph.paths_are_few()
    }

    /// Returns `true` if checking a value makes more than so many visits, or takes as long as they
    /// do.
    pub(crate) fn exceeds(&self, value: &Value, visits: u64) -> bool {
        if self.is_surely_within(value, visits) {
            return false;
        }
        let count = walk::count(&self.graph, value, visits, Measure::Listed);
        let steps = visits.saturating_mul(STEPS_PER_VISIT);
        count.ended_early || count.visits > visits || count.steps > steps
    }

    /// Returns `true` if so many visits, and looks for what subschemas list, are enough for any
    /// value of this size.
    fn is_surely_within(&self, value: &Value, most: u64) -> bool {
        let graph = &self.graph;
        let each = graph.paths().saturating_add(graph.listed_per_value());
        graph.paths_are_few() && walk::size(value).0.saturating_mul(each) <= most
    }

    /// Returns `true` if a value may break more rules than there is room for.
    pub(crate) fn may_fail_too_often(&self, value: &Value) -> bool {
        if self.is_surely_within(value, MAX_FAILURES) {
            return false;
        }
        let count = walk::count(&self.graph, value, MAX_FAILURES, Measure::Listed);
        count.ended_early || count.failures > MAX_FAILURES
    }

    /// Returns `true` if no value of this size can take too much: without a recursion, each place
    /// is visited by each subschema as often as there are paths to it.
    fn is_plain_for(&self, value: &Value, measure: Measure) -> bool {
        if !self.graph.paths_are_few() {
            return false;
        }
        if self.graph.steps_per_byte() == 0 && measure == Measure::Unlisted {
            return true;
        }
        let (values, bytes) = walk::size(value);
        let size = values.saturating_add(bytes);
        let steps = self.graph.steps_per_byte().saturating_mul(size);
        match measure {
            Measure::Unlisted => steps <= MAX_STEPS,
            Measure::Listed => {
                let listed = self.graph.listed_per_value().saturating_mul(values);
                let visits = self.graph.paths().saturating_mul(values);
                steps.saturating_add(listed) <= MAX_STEPS && visits <= MAX_PAIRS
            }
        }
    }

    #[cfg(test)]
    fn count(&self, value: &Value) -> Count {
        walk::count(&self.graph, value, MAX_PAIRS, Measure::Listed)
    }
}

fn refused(count: &Count, measure: Measure) -> Option<String> {
    let Count {
        visits,
        pairs,
        steps,
        ended_early,
        ..
    } = *count;
    if ended_early {
        return Some(format!(
            "checking this value takes more than {MAX_PAIRS} visits; send less at a time"
        ));
    }
    let most = MAX_VISITS_PER_PAIR.saturating_mul(pairs);
    if visits > MAX_VISITS && visits > most {
        let visits = match visits {
            u64::MAX => "visits without end".to_owned(),
            visits => format!("{visits} visits"),
        };
        return Some(format!(
            "checking this value takes {visits} of {pairs} pairs of subschema and place; \
             ktsu validate names where the schema comes to one definition by two ways"
        ));
    }
    (steps > MAX_STEPS).then(|| match measure {
        Measure::Unlisted => format!(
            "checking this value against pattern, lengths and uniqueItems takes more than \
             {MAX_STEPS} steps; send shorter texts or lists, or bound them with maxLength and \
             maxItems and a smaller pattern"
        ),
        Measure::Listed => format!(
            "checking this value against patterns, lengths, uniqueItems and the names and values \
             that the schema lists takes more than {MAX_STEPS} steps; send shorter texts or lists, \
             or bound them with maxLength and maxItems and list fewer names"
        ),
    })
}

#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;
