//! The check of what an agent may run by its commands in a step: the names that its file declares,
//! of those which the step offers, with inputs that fit. Made when a model calls the tool, and
//! again when the outcome is settled.

use ktsu_ledger::event::plan::{AgentCommands, AgentPlan};

use crate::commands::OutcomeCommand;
use crate::definition::Definition;
use crate::params;
use crate::rules::DecisionRules;

/// The code and the words of a refusal.
pub type CommandRefusal = (&'static str, String);

/// Checks that the file of an agent declares what a command runs.
///
/// # Errors
/// `command_not_permitted`, with what is declared.
pub fn check_declared(
    declared: Option<&AgentCommands>,
    command: &OutcomeCommand,
) -> Result<(), CommandRefusal> {
    let Some((name, _)) = command.runs() else {
        return Ok(());
    };
    match declared.is_some_and(|declared| declared.may_invoke(name)) {
        true => Ok(()),
        false => {
            let words = format!("the agent does not declare that it invokes {name:?}");
            Err(("command_not_permitted", words))
        }
    }
}

/// Checks that a step offers what a command runs, for as many inputs, and that each fits its
/// params.
///
/// # Errors
/// `command_not_permitted`, `outcome_invalid`, `invalid_params`.
pub fn check_inputs(
    definition: &Definition,
    plan: &AgentPlan,
    rules: DecisionRules,
    command: &OutcomeCommand,
) -> Result<(), CommandRefusal> {
    let Some((name, inputs)) = command.runs() else {
        return Ok(());
    };
    let Some(declared) = plan.may_invoke.get(name) else {
        let words = format!("the step does not declare {name:?} in may_invoke");
        return Err(("command_not_permitted", words));
    };
    let (given, most) = (inputs.len(), declared.max_items);
    if given > most as usize {
        let of = command.name();
        let words = format!("the {of} of {name:?} has {given} inputs, and may have {most}");
        return Err(("outcome_invalid", words));
    }
    let child = definition.workflow(&declared.child.workflow);
    let schema = child.and_then(|child| child.params.as_ref());
    for (at, input) in inputs.iter().enumerate() {
        let Err(found) = params::resolve(schema, input.clone(), rules) else {
            continue;
        };
        let which = match command {
            OutcomeCommand::Fanout { .. } => format!("input {at}"),
            OutcomeCommand::Invoke { .. }
            | OutcomeCommand::Review { .. }
            | OutcomeCommand::Suspend { .. }
            | OutcomeCommand::Emit { .. } => "the input".to_owned(),
        };
        let code = crate::airlock::code_of_first(&found, "invalid_params");
        let first = rules.first_violation(found);
        let words = format!("{which} of {name:?} does not fit its params{first}");
        return Err((code, words));
    }
    Ok(())
}
