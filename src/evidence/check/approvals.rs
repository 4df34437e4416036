//! Whether people allowed what they had to be asked about: every call that its definition gates was
//! approved for these arguments, by enough people, none of whom may not, and every decision is about
//! a question that was open (seed 000, invariant 34; decision A1).

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::plan::{ApprovalPolicy, Plan};
use ktsu_ledger::event::{
    AgentEvent, AgentFinished, ApprovalDecided, ApprovalExpired, ApprovalRequested, Decision,
    DoubtReason, NotSent, RunEvent, ToolCalled, ToolReturned,
};
use ktsu_ledger::{Actor, Event, Frame, Timestamp};

use super::history::{History, server};
use super::{Claim, Evidence, Wrong};

/// A question, and what was said to it.
struct Asked<'a> {
    task: Task<'a>,
    call: (u64, u32),
    digest: &'a str,
    /// Of a gate; nothing of a call in doubt.
    gate: Option<&'a ApprovalRequested>,
    until: Option<Timestamp>,
    approved_by: BTreeSet<&'a str>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Approved,
    Rejected,
    Happened,
    Expired,
}

type Task<'a> = (&'a str, &'a str, Option<u32>);

/// What is known of questions at a frame.
#[derive(Default)]
struct People<'a> {
    plan: Option<Plan>,
    proposer: &'a str,
    asked: BTreeMap<u64, Asked<'a>>,
    made: BTreeMap<u64, (&'a Frame, &'a ToolCalled)>,
    decided: BTreeSet<String>,
    /// A decision by somebody who was not asked who they are.
    unknown: Option<String>,
}

impl Evidence {
    /// Whether people allowed what they had to be asked about.
    pub(super) fn approvals(&self) -> Claim {
        let judged = self.histories().and_then(|histories| {
            let (mut decided, mut unknown) = (BTreeSet::new(), None);
            for history in &histories {
                let people = people_of(history)?;
                decided.extend(people.decided);
                unknown = unknown.or(people.unknown);
            }
            Ok((decided.len(), unknown))
        });
        match judged {
            Err(wrong) => Claim::failed("approvals", wrong),
            Ok((_, Some(frame))) => Claim {
                frame: Some(frame),
                ..Claim::not_covered("approvals", "nobody was asked who they are: auth is none")
            },
            Ok((0, None)) => Claim::proven("approvals", "nobody decided, and nobody had to"),
            Ok((count, None)) => {
                Claim::proven("approvals", format!("{count} decisions of people hold"))
            }
        }
    }
}

fn people_of<'a>(history: &'a History<'_>) -> Result<People<'a>, Wrong> {
    let mut people = People::default();
    for &frame in &history.frames {
        let taken = people.take(frame);
        taken.map_err(|words| Wrong::at(frame.id(), words))?;
        if let Some(plan) = history.plan(frame) {
            people.plan = Some(plan?);
        }
    }
    Ok(people)
}

impl<'a> People<'a> {
    fn take(&mut self, frame: &'a Frame) -> Result<(), &'static str> {
        if let Some(created) = frame.event.created() {
            self.proposer = &created.principal.id;
        }
        if let Event::Run(RunEvent::Branched(branch)) = &frame.event {
            self.proposer = &branch.by.id;
            // What was not executed before the fork is asked again in the branch.
            let made: BTreeSet<_> = self
                .made
                .values()
                .filter_map(|(_, it)| it.approval)
                .collect();
            self.asked.retain(|request, _| made.contains(request));
        }
        let Event::Agent(event) = &frame.event else {
            return Ok(());
        };
        match event {
            AgentEvent::ApprovalRequested(asked) => self.ask(frame, asked),
            AgentEvent::ToolInDoubt(doubt) if doubt.reason != DoubtReason::TaskEnded => {
                let made = self.made.get(&doubt.called);
                let (_, called) = made.ok_or("it is about a call that was never made")?;
                let asked = Asked {
                    task: (&frame.scope, &doubt.step, doubt.item),
                    call: (called.response, called.call),
                    digest: &called.digest,
                    gate: None,
                    until: None,
                    approved_by: BTreeSet::new(),
                    state: State::Open,
                };
                self.asked.insert(frame.seq, asked);
                Ok(())
            }
            AgentEvent::ApprovalDecided(decided) => self.decide(frame, decided),
            AgentEvent::ApprovalExpired(expired) => self.expire(frame, expired),
            AgentEvent::ToolCalled(called) => self.call(frame, called),
            AgentEvent::ToolReturned(returned) => self.answer(returned),
            AgentEvent::Finished(finished) => self.finish(frame, finished),
            AgentEvent::Request(_)
            | AgentEvent::Response(_)
            | AgentEvent::Decided(_)
            | AgentEvent::ReflectStarted(_)
            | AgentEvent::BudgetExhausted(_)
            | AgentEvent::ToolInDoubt(_) => Ok(()),
        }
    }

    fn policy(&self, frame: &Frame, step: &str, name: &str, tool: &str) -> Option<&ApprovalPolicy> {
        let plan = self.plan.as_ref()?;
        server(plan, &frame.scope, step, name)?.approval(tool)
    }

    fn ask(&mut self, frame: &'a Frame, asked: &'a ApprovalRequested) -> Result<(), &'static str> {
        let policy = self.policy(frame, &asked.step, &asked.server, &asked.tool);
        if policy != Some(&asked.policy) {
            return Err("its definition says otherwise who is asked about the call");
        }
        let timeout = asked.policy.timeout.as_ref();
        self.asked.insert(
            frame.seq,
            Asked {
                task: (&frame.scope, &asked.step, asked.item),
                call: (asked.response, asked.call),
                digest: &asked.digest,
                gate: Some(asked),
                until: timeout.map(|timeout| frame.at.plus_millis(timeout.ms)),
                approved_by: BTreeSet::new(),
                state: State::Open,
            },
        );
        Ok(())
    }

    fn decide(
        &mut self,
        frame: &'a Frame,
        decided: &'a ApprovalDecided,
    ) -> Result<(), &'static str> {
        let by = decided.by.id.as_str();
        if frame.actor != Actor::Principal(by.to_owned()) {
            return Err("whoever decided is not whoever appended it");
        }
        let task = (frame.scope.as_str(), decided.step.as_str(), decided.item);
        let asked = self.asked.get_mut(&decided.request);
        let asked = asked.filter(|asked| asked.task == task);
        let asked = asked.ok_or("it answers a question that nobody asked")?;
        if asked.state != State::Open {
            return Err("the question was answered before");
        }
        if asked.digest != decided.digest {
            return Err("it is about other arguments than those of the call");
        }
        if asked.until.is_some_and(|until| until <= frame.at) {
            return Err("it came when the time to decide was over");
        }
        let policy = asked.gate.map(|gate| &gate.policy);
        asked.state = match decided.decision {
            Decision::Happened if policy.is_some() => {
                return Err("a call that was not sent cannot have happened");
            }
            Decision::Happened => State::Happened,
            Decision::Rejected => State::Rejected,
            Decision::Approved => {
                let own = policy.is_some_and(|policy| policy.not_by_proposer);
                if own && by == self.proposer {
                    return Err("whoever started the run may not approve the call");
                }
                if !asked.approved_by.insert(by) {
                    return Err("one person counts once");
                }
                let needed = policy.map_or(1, |policy| policy.quorum.max(1)) as usize;
                match asked.approved_by.len() >= needed {
                    true => State::Approved,
                    false => State::Open,
                }
            }
        };
        self.decided.insert(frame.id());
        if decided.by.auth == "none" {
            self.unknown.get_or_insert_with(|| frame.id());
        }
        Ok(())
    }

    fn expire(&mut self, frame: &Frame, expired: &ApprovalExpired) -> Result<(), &'static str> {
        let asked = self.asked.get_mut(&expired.request);
        let asked = asked.filter(|asked| asked.state == State::Open);
        let over = |asked: &&mut Asked<'_>| asked.until.is_some_and(|until| until <= frame.at);
        let asked = asked.filter(over);
        asked.ok_or("no wait was over")?.state = State::Expired;
        Ok(())
    }

    fn call(&mut self, frame: &'a Frame, called: &'a ToolCalled) -> Result<(), &'static str> {
        let gated = self.policy(frame, &called.step, &called.server, &called.tool);
        if gated.is_some() && called.approval.is_none() {
            return Err("it was made without the approval that its definition asks for");
        }
        if let Some(approval) = called.approval {
            let asked = self.asked.get(&approval);
            let gate = asked.and_then(|asked| Some((asked, asked.gate?)));
            let (asked, gate) = gate.ok_or("nobody was asked about it")?;
            let task = (frame.scope.as_str(), called.step.as_str(), called.item);
            let same = (asked.task, asked.call, asked.digest)
                == (task, (called.response, called.call), called.digest.as_str());
            if !same || (&gate.server, &gate.tool) != (&called.server, &called.tool) {
                return Err("people were asked about another call");
            }
            if asked.state != State::Approved {
                return Err("people did not approve it");
            }
        }
        if called.again.is_some() && !self.may_be_repeated(called) {
            return Err("it was in doubt, and nobody said to send it again");
        }
        self.made.insert(frame.seq, (frame, called));
        Ok(())
    }

    /// Whether no doubt about the call is left open.
    fn may_be_repeated(&self, called: &ToolCalled) -> bool {
        let doubts = self.asked.values().filter(|asked| asked.gate.is_none());
        let mut of_call = doubts.filter(|asked| asked.call == (called.response, called.call));
        of_call.all(|asked| asked.state == State::Approved)
    }

    fn answer(&self, returned: &ToolReturned) -> Result<(), &'static str> {
        let (gate, states): (bool, &[State]) = match returned.not_sent {
            // Whoever said so did in the run that is recomputed.
            _ if returned.recorded.is_some() => return Ok(()),
            Some(NotSent::Rejected) => (true, &[State::Rejected, State::Expired]),
            Some(NotSent::InDoubt) => (false, &[State::Rejected]),
            _ => return Ok(()),
        };
        let place = (returned.response, returned.call);
        let mut asked = self.asked.values();
        match asked
            .any(|it| it.call == place && it.gate.is_some() == gate && states.contains(&it.state))
        {
            true => Ok(()),
            false => Err("nobody rejected the call"),
        }
    }

    /// A task that people ended was ended by people.
    fn finish(&self, frame: &Frame, finished: &AgentFinished) -> Result<(), &'static str> {
        let outcome = finished.outcome.to_value();
        let code = outcome
            .pointer("/error/code")
            .and_then(|code| code.as_str());
        let (gate, state) = match code.filter(|_| finished.report.is_none()) {
            Some("approval_rejected") => (true, State::Rejected),
            Some("approval_timed_out") => (true, State::Expired),
            Some("tool_in_doubt") => (false, State::Rejected),
            _ => return Ok(()),
        };
        let task = (frame.scope.as_str(), finished.step.as_str(), finished.item);
        let mut asked = self.asked.values();
        match asked.any(|it| it.task == task && it.gate.is_some() == gate && it.state == state) {
            true => Ok(()),
            false => Err("it ended by a decision that nobody made"),
        }
    }
}
