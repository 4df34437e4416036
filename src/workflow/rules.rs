//! The versions of the decision rules, and every difference between them.
//!
//! The first frame of a run records the number of the rules it is decided by, for ever: when it is
//! replayed, forked, resumed, recomputed or recovered after a crash. A branch and a recompute
//! record the number of the run they come from.
//!
//! A fix that makes the same inputs lead to other frames is a method here, which is true from some
//! number on, and the deciding code calls it. New runs record [`RULES`].

use ktsu_ledger::{Event, Frame};
use ktsu_projections::life::command_order::{CommandOrder, CommandPhase};
use ktsu_projections::run::RunState;
use ktsu_schema::message_at;

use crate::airlock::SchemaViolation;
use crate::commands::OutcomeCommand;
use crate::expression::InvokedMention;

/// The newest decision rules. Raised whenever the same inputs would lead to other frames.
///
/// 1. What ktsu decided first.
/// 2. See the methods of [`DecisionRules`]; and under a budget calls reserve by model group, which
///    the fold looks at: [`ktsu_projections::run::RESERVING_RULES`].
/// 3. Those of runs that load worlds. Everything else is as under 2. Runs without worlds went on
///    recording 2.
/// 4. Events of outcomes become notes, and what outcomes emit is carried out. Runs without worlds
///    record them, too.
/// 5. Commands of an outcome that run workflows are carried out.
/// 6. See the methods of [`DecisionRules`]; and branches of all frames of complete runs accept posts only
///    after they were resumed, which the fold checks: [`ktsu_projections::run::BRANCHES_OPEN_RULES`].
/// 7. Outcomes wait for a person's review, or suspend their step until data are there; and see the methods
///    of [`DecisionRules`].
pub const RULES: u32 = 7;

/// The rules a run is decided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DecisionRules(u32);

/// Decision rules that this version of ktsu does not have. Nothing is decided by guessing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "recorded under decision rules {recorded}, while this version of ktsu has rules 1 to {RULES}"
)]
pub struct UnknownRulesError {
    /// The number that is recorded.
    pub recorded: u32,
}

impl DecisionRules {
    /// The newest rules.
    pub const NEWEST: Self = Self(RULES);

    /// The rules of a recorded number.
    ///
    /// # Errors
    /// [`UnknownRulesError`].
    pub fn from_recorded(recorded: u32) -> Result<Self, UnknownRulesError> {
        match recorded {
            1..=RULES => Ok(Self(recorded)),
            _ => Err(UnknownRulesError { recorded }),
        }
    }

    /// The rules that a run is decided by from here on.
    pub fn of(state: &RunState) -> Self {
        Self(state.rules())
    }

    /// Returns `true` if a null that a template gives is the absence of a value where the schema
    /// does not allow null, for the params of children as for those of agents (decision K4).
    pub fn nulls_are_absence(self) -> bool {
        self.0 >= 2
    }

    /// Returns `true` if text made of numbers has every whole number of 64 bits without an
    /// exponent, however it was written, those within arrays and objects too, and `-0` as `0`
    /// (decision T1).
    pub fn whole_numbers_are_plain_text(self) -> bool {
        self.0 >= 2
    }

    /// Returns `true` if an agent that comes with ktsu has to give the reserved fields that its own
    /// output schema requires.
    pub fn requires_first_party_reserved_fields(self) -> bool {
        self.0 >= 2
    }

    /// Returns `true` if failures of params, and of the output of a workflow, name the place as a
    /// JSON pointer, as those of steps do.
    pub fn reports_json_pointers(self) -> bool {
        self.0 >= 2
    }

    /// Returns `true` if defaults that hold themselves, or come to too much, are refused. Under
    /// rules 1 those below a depth were left out.
    pub fn bounds_defaults(self) -> bool {
        self.0 >= 2
    }

    /// Returns `true` if elements that `prefixItems` describes get the defaults it has for them,
    /// and not those of `items`.
    pub fn first_items_have_defaults_of_their_own(self) -> bool {
        self.0 >= 2
    }

    /// Returns `true` if a param of a child in which defaults were filled in is recorded with them.
    /// Under rules 1 it was recorded as the place of the value that lacks them.
    pub fn filled_params_are_recorded(self) -> bool {
        self.0 >= 2
    }

    /// Returns `true` if reserved fields are never missing from an output, whichever part of a
    /// schema speaks of the output as a whole (decision R5). Under rules 1 only its own `required`
    /// is not asked.
    pub fn reserved_fields_are_never_missing(self) -> bool {
        self.0 >= 2
    }

    /// Returns `true` if the events of an outcome become notes, and what it emits is carried out.
    /// Under earlier rules any command fails its step, and events stay in the outcome.
    pub fn carries_out_commands(self) -> bool {
        self.0 >= 4
    }

    /// Returns `true` if a value that would take too much to check is refused. Under earlier rules
    /// every value is checked, whatever that takes.
    pub fn bounds_validation(self) -> bool {
        self.0 >= 6
    }

    /// Returns `true` if the names and values that a schema lists count for what checking a value
    /// takes, and a value that may break very many rules is answered with one, and not with a list
    /// that takes gigabytes.
    pub fn bounds_violations(self) -> bool {
        self.0 >= 7
    }

    /// Returns `true` if commands of an outcome may run workflows. Under earlier rules such
    /// commands fail their step.
    pub fn runs_workflows_of_commands(self) -> bool {
        self.0 >= 5
    }

    /// Returns `true` if the failure of a webhook whose URL is not valid says so. Under earlier
    /// rules it says that the environment does not allow the URL.
    pub fn names_what_is_no_web_address(self) -> bool {
        self.0 >= 6
    }

    /// Returns `true` if what is malformed in an outcome is named by its place, in words of ktsu.
    /// Under earlier rules the message was that of a library.
    pub fn says_where_outcomes_are_malformed(self) -> bool {
        self.0 >= 6
    }

    /// Returns `true` if an outcome may suspend its step.
    pub fn suspends_steps(self) -> bool {
        self.0 >= 7
    }

    /// Returns `true` if people decide on outcomes that ask for a review.
    pub fn asks_for_reviews(self) -> bool {
        self.0 >= 7
    }

    /// Returns `true` if the failure of a refused command names it by its type and its place in the
    /// outcome. Under earlier rules some failures name the command by what it runs or emits.
    pub fn names_refused_commands(self) -> bool {
        self.0 >= 7
    }

    /// Returns `true` if a recompute is compared with its run by commands, too.
    pub fn compares_commands(self) -> bool {
        self.0 >= 6
    }

    /// Returns `true` if the commands that a model gives by tools have the order of its calls in
    /// the reply. Under earlier rules a runtime may give them in the order of the results.
    pub fn commands_have_the_order_of_calls(self) -> bool {
        self.0 >= 6
    }

    /// In which order commands get their frames. From rules 6 on, what an outcome tells is recorded
    /// with the end of its step, after everything that it runs (decision W5).
    pub fn order(self, commands: &[OutcomeCommand]) -> CommandOrder {
        let phases = commands.iter().map(|one| CommandPhase::of(one.name()));
        CommandOrder::new(phases, self.0)
    }

    /// Returns `true` if an expression finds `ktsu_invoked` of a step whose output it sees; `some`:
    /// the commands of the step ran workflows. Under earlier rules it does where there are some and
    /// it is named by a path (decision W5).
    pub fn has_invoked(self, some: bool, mention: InvokedMention) -> bool {
        self.0 >= 6 || (some && mention == InvokedMention::Path)
    }

    /// Returns `true` if webhooks of what a responder runs are sent only where both sides say
    /// `execute`, as for every other child (decision S7). Under earlier rules one of the two was
    /// enough.
    pub fn all_sides_agree(self) -> bool {
        self.0 >= 6
    }
}

impl DecisionRules {
    /// The first violation of a value, as the words behind a failure.
    pub(crate) fn first_violation(self, found: Vec<SchemaViolation>) -> String {
        let Some(first) = found.into_iter().next() else {
            return String::new();
        };
        match self.reports_json_pointers() {
            true => format!(": {}", message_at(&first.message, &first.pointer)),
            false => format!(": {}", first.message),
        }
    }
}

/// The number that a frame names, for itself and the frames after it.
pub fn recorded_rules(event: &Event) -> Option<u32> {
    let begun = event.created().map(|created| created.rules);
    begun.or_else(|| Some(event.branched()?.rules))
}

/// Refuses frames that were decided by rules this version does not have: they may mean something
/// else than they seem to.
///
/// # Errors
/// [`UnknownRulesError`] names the first number that is not known.
pub fn check_rules_known<'a>(
    frames: impl IntoIterator<Item = &'a Frame>,
) -> Result<(), UnknownRulesError> {
    let mut numbers = frames
        .into_iter()
        .filter_map(|frame| recorded_rules(&frame.event));
    numbers.try_for_each(|number| DecisionRules::from_recorded(number).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_carried_out_from_rules_4_on() {
        let carries_out = |rules| DecisionRules(rules).carries_out_commands();
        assert_eq!([1, 2, 3, 4].map(carries_out), [false, false, false, true]);
        let bounds = |rules| DecisionRules(rules).bounds_validation();
        assert_eq!([5, 6].map(bounds), [false, true]);
        let ordered = |rules| DecisionRules(rules).commands_have_the_order_of_calls();
        assert_eq!([5, 6].map(ordered), [false, true]);
        let runs = |rules| DecisionRules(rules).runs_workflows_of_commands();
        assert_eq!([4, 5].map(runs), [false, true]);
    }

    #[test]
    fn rules_from_one_to_the_newest_are_known_and_no_others() {
        for number in 1..=RULES {
            assert_eq!(
                DecisionRules::from_recorded(number),
                Ok(DecisionRules(number))
            );
        }
        assert_eq!(
            DecisionRules::from_recorded(RULES),
            Ok(DecisionRules::NEWEST)
        );
        for recorded in [0, RULES + 1, u32::MAX] {
            let refused = DecisionRules::from_recorded(recorded);
            assert_eq!(refused, Err(UnknownRulesError { recorded }));
        }
    }

    #[test]
    fn a_repair_does_not_reach_runs_recorded_under_rules_1() {
        let first = DecisionRules::from_recorded(1).unwrap();
        for differs in [
            DecisionRules::nulls_are_absence,
            DecisionRules::whole_numbers_are_plain_text,
            DecisionRules::requires_first_party_reserved_fields,
            DecisionRules::reports_json_pointers,
            DecisionRules::bounds_defaults,
            DecisionRules::first_items_have_defaults_of_their_own,
            DecisionRules::filled_params_are_recorded,
            DecisionRules::reserved_fields_are_never_missing,
            DecisionRules::names_what_is_no_web_address,
        ] {
            assert!(!differs(first));
            assert!(differs(DecisionRules::NEWEST));
        }
    }
}
