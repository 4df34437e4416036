//! Checks that the approvals that a kit requires are possible: that enough people may decide, and
//! that a notification has something to announce.

use std::path::Path;

use ktsu_ledger::event::plan::{ApprovalPolicy, StepWork};

use super::Kit;
use super::loader::Loader;
use super::step::StepDraft;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_projections::reviews::deciding_roles;

/// Reports a webhook that fires for approvals only, in a workflow that requires none.
pub(super) fn check(loader: &mut Loader) {
    let mut found = Vec::new();
    for (path, draft) in &loader.drafts {
        let Some(draft) = draft else { continue };
        let mut positions = 0..draft.steps.len();
        if positions.any(|position| may_ask(loader, path, position)) {
            continue;
        }
        let waiting = draft.steps.iter().filter(|step| is_on_approval(step));
        found.extend(waiting.map(|step| {
            let id = &step.plan.id;
            let words =
                format!("no tool call of this workflow needs an approval, so {id:?} never fires");
            let fault = Fault::new(FaultCode::ApprovalNeverAsked, step.place, words).warning();
            let hint = "add require_approval to a tool of an agent of this workflow";
            fault.hint(hint).in_file(Path::new(path))
        }));
    }
    found.into_iter().for_each(|fault| loader.faults.add(fault));
}

fn is_on_approval(step: &StepDraft) -> bool {
    matches!(&step.plan.work, StepWork::Webhook(webhook) if webhook.on_approval)
}

/// Returns `true` if a step's agent may need an approval. One that cannot be read may: its faults
/// are reported elsewhere.
fn may_ask(loader: &Loader, path: &str, position: usize) -> bool {
    let Some(agent) = loader.calls.get(&(path.to_owned(), position)) else {
        return false;
    };
    let Some(Some(draft)) = loader.agents.get(agent) else {
        return true;
    };
    let mut calls = draft.servers.iter().enumerate();
    calls.any(|(position, call)| {
        let key = loader.uses.get(&(agent.clone(), position));
        let server = key.and_then(|key| loader.servers.get(key)?.as_ref());
        server.is_none_or(|server| {
            let both = server.server.allowlist.intersection(&call.allowlist);
            both.policies().next().is_some()
        })
    })
}

/// The people who decide in an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approvers {
    /// Nobody is authenticated, so the starter of a run and the decider are the same.
    Anybody,
    /// The number of people with a role that permits it.
    Named(usize),
}

impl Approvers {
    /// The reason why these people can never approve; nothing if they can.
    fn shortfall(self, quorum: u32, not_by_proposer: bool, what: &str) -> Option<String> {
        let people = match quorum {
            1 => "1 person".to_owned(),
            most => format!("{most} people"),
        };
        match self {
            Self::Anybody if quorum > 1 => Some(format!(
                "{people} have to approve, and without principals there is one"
            )),
            Self::Anybody if not_by_proposer => Some(format!(
                "the principal who starts a run may not approve its {what}, and without principals there is no other"
            )),
            Self::Named(there) if there < quorum as usize => Some(format!(
                "{people} must approve, and {there} may in this environment"
            )),
            Self::Anybody | Self::Named(_) => None,
        }
    }
}

/// Reports what these people could never approve, once per server, where an agent uses it.
pub fn unmeetable_policies(kit: &Kit, approvers: &Approvers) -> Vec<Fault> {
    let mut found = Vec::new();
    for (agent, uses) in &kit.uses {
        for one in uses {
            let mut policies = one.allowlist.policies();
            let short = |policy: ApprovalPolicy| {
                approvers.shortfall(policy.quorum, policy.not_by_proposer, "calls")
            };
            let Some(why) = policies.find_map(short) else {
                continue;
            };
            let words = format!("tools of {:?} wait in vain: {why}", one.name);
            let fault = Fault::new(FaultCode::NobodyToApprove, one.place, words).warning();
            let hint = "principals: [{name: …, token: …, roles: [approver]}] in the environment";
            found.push(fault.hint(hint).in_file(Path::new(agent)));
        }
    }
    found
}

/// Reports reviews that could never be approved; `people` are those of whom each has one of the roles of
/// a policy.
pub fn unmeetable_reviews(kit: &Kit, people: impl Fn(&[String]) -> Approvers) -> Vec<Fault> {
    let mut found = Vec::new();
    for (agent, (place, policy)) in &kit.reviews {
        let roles = deciding_roles(&policy.roles);
        let why = people(&roles).shortfall(policy.quorum, policy.not_by_proposer, "outputs");
        let Some(why) = why else { continue };
        let words = format!("reviews of this agent wait in vain: {why}");
        let fault = Fault::new(FaultCode::NobodyToApprove, *place, words).warning();
        let role = roles.first().map_or("approver", String::as_str);
        let hint =
            format!("principals: [{{name: …, token: …, roles: [{role}]}}] in the environment");
        found.push(fault.hint(hint).in_file(Path::new(agent)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_needs_as_many_people_as_it_asks() {
        use Approvers::{Anybody, Named};
        for (quorum, not_by_proposer, approvers, enough) in [
            (1, false, Anybody, true),
            (1, true, Anybody, false),
            (2, false, Anybody, false),
            (1, true, Named(1), true),
            (1, false, Named(0), false),
            (2, false, Named(1), false),
            (2, true, Named(2), true),
        ] {
            let why = approvers.shortfall(quorum, not_by_proposer, "calls");
            assert_eq!(why.is_none(), enough, "{approvers:?} {quorum} {why:?}");
        }
    }
}
