//! The workflows that are measured, made without files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ktsu_kit::{Kit, KitWorkflow};
use ktsu_ledger::event::plan::{
    FORMAT, Op, OutputPlan, Plan, Policy, StepPlan, StepWork, TransformPlan, Visibility,
    WebhookPlan, Webhooks, WorkflowPlan,
};
use ktsu_ledger::event::{ContinueReason, Effects, Limits, Principal, RunEvent};
use ktsu_ledger::{CanonicalJson, Event, Sealed, StreamId, Timestamp};
use ktsu_projections::RunState;
use ktsu_projections::envelope::{DetailedRun, EnvelopeDetails};
use ktsu_workflow::admit::{self, Invocation};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::Memo;
use ktsu_workflow::turn;
use serde_json::{Value, json};

/// The name of the only workflow of a kit made here.
pub(crate) const NAME: &str = "bench";

/// What runs are started with: a small ticket.
pub(crate) fn params() -> Value {
    json!({"number": 4711, "subject": "The printer on the third floor says PC LOAD LETTER"})
}

fn transform(at: u32) -> StepPlan {
    let input = match at {
        0 => "params".to_owned(),
        _ => format!("step.s{}.result", at - 1),
    };
    let map = match at {
        0 => "{number: number, subject: subject}",
        _ => "{number: [0].number || number, subject: subject}",
    };
    StepPlan {
        condition: None,
        id: format!("s{at}"),
        needs: at.checked_sub(1).into_iter().collect(),
        schema: None,
        summary: None,
        work: StepWork::Transform(TransformPlan {
            inputs: vec![input],
            ops: vec![Op::Map {
                expr: map.to_owned(),
            }],
        }),
    }
}

fn webhook(at: u32, url: &str) -> StepPlan {
    let body = json!({"number": "{{ params.number }}", "subject": "{{ params.subject }}"});
    StepPlan {
        condition: None,
        id: "call".to_owned(),
        needs: at.checked_sub(1).into_iter().collect(),
        schema: None,
        summary: None,
        work: StepWork::Webhook(WebhookPlan {
            body: Some(CanonicalJson::from_value(&body).unwrap()),
            method: "POST".to_owned(),
            on_approval: false,
            retry: None,
            secret: None,
            timeout_ms: 3_600_000,
            url: url.to_owned(),
        }),
    }
}

/// A chain of transforms, each reading the one before, and a webhook at its end if there is a URL.
pub(crate) fn chain(transforms: u32, url: Option<&str>) -> Arc<Definition> {
    chain_as(NAME, transforms, url)
}

/// As [`chain`], under a name of its own.
pub(crate) fn chain_as(name: &str, transforms: u32, url: Option<&str>) -> Arc<Definition> {
    let mut steps: Vec<StepPlan> = (0..transforms).map(transform).collect();
    steps.extend(url.map(|url| webhook(transforms, url)));
    Arc::new(Definition::compile(plan(name, steps)).unwrap())
}

/// A plan of one workflow of these steps, which gives what the last of them does.
pub(crate) fn plan(name: &str, steps: Vec<StepPlan>) -> Plan {
    let output = steps.last().map(|last| {
        let last = json!({ "last": format!("{{{{ step.{} }}}}", last.id) });
        OutputPlan {
            map: Some(CanonicalJson::from_value(&last).unwrap()),
            schema: None,
        }
    });
    let workflow = WorkflowPlan {
        env: Vec::new(),
        invoke: None,
        name: name.to_owned(),
        output,
        params: None,
        policy: Policy::default(),
        steps,
        version: "1.0.0".to_owned(),
        visibility: Visibility::Root,
        webhooks: Webhooks::Execute,
    };
    Plan {
        agents: BTreeMap::new(),
        format: FORMAT,
        root: name.to_owned(),
        workflows: BTreeMap::from([(name.to_owned(), Arc::new(workflow))]),
        worlds: BTreeMap::new(),
    }
}

/// A kit of some definitions by name.
pub(crate) fn kit(definitions: &[(&str, &Arc<Definition>)]) -> Arc<Kit> {
    let workflow = |(name, definition): &(&str, &Arc<Definition>)| {
        let workflow = KitWorkflow {
            path: format!("{name}.workflow.yaml"),
            definition: Arc::clone(definition),
            visibility: Visibility::Root,
            lock: None,
        };
        ((*name).to_owned(), workflow)
    };
    Arc::new(Kit {
        root: PathBuf::from("."),
        name: NAME.to_owned(),
        workflows: definitions.iter().map(workflow).collect(),
        ..Kit::empty()
    })
}

/// A run that was decided here, without a store.
pub(crate) struct Recorded {
    /// Where it stands.
    pub(crate) state: RunState,
    /// What was noted beside that, as for a caller who waits for the end.
    pub(crate) details: EnvelopeDetails,
    /// What it holds of values.
    pub(crate) memo: Memo,
    /// All of its frames.
    pub(crate) sealed: Vec<Sealed>,
}

/// Decides a run until it ends, waits for the world, or has so many frames.
pub(crate) fn record(definition: &Definition, frames: usize) -> Recorded {
    decide(definition, params(), frames, Limits::default())
}

/// As [`record`], of a run with these params that ends by itself.
pub(crate) fn record_with(definition: &Definition, params: Value) -> Recorded {
    decide(definition, params, usize::MAX, Limits::default())
}

/// Decides a run with turns of one step each, until so many steps have ended.
pub(crate) fn record_steps(definition: &Definition, steps: usize) -> Recorded {
    record_turns(definition, params(), steps * 3)
}

/// Decides a run with turns of three frames, until there are so many frames.
pub(crate) fn record_turns(definition: &Definition, params: Value, frames: usize) -> Recorded {
    let one = Limits {
        turn_frames: 3,
        ..Limits::default()
    };
    decide(definition, params, frames, one)
}

fn decide(definition: &Definition, params: Value, frames: usize, limits: Limits) -> Recorded {
    let at = Timestamp::from_micros(1_790_000_000_000_000);
    let asked = Invocation {
        body: params,
        env: BTreeMap::new(),
        idempotency: None,
        lock: None,
        principal: Principal {
            auth: "none".to_owned(),
            id: "local".to_owned(),
        },
        effects: Effects::Execute,
        no_cache: false,
        references: Vec::new(),
    };
    let mut created = admit::invocation(definition, asked).unwrap();
    if let Event::Run(RunEvent::Created(created)) = &mut created.event {
        created.limits = limits;
    }
    let name = format!("run_{}", uuid::Uuid::now_v7().simple());
    let stream = StreamId::run(&name).unwrap();
    let memo = Memo::default();
    let accepted = turn::accept(definition, stream, created, at, &memo);
    let (mut state, mut details, mut turn) = accepted.unwrap();
    let mut sealed = turn.sealed;
    while turn.more && sealed.len() < frames {
        let input = turn::continuation(&state, ContinueReason::Bound);
        let mut run = DetailedRun {
            state: &mut state,
            details: &mut details,
        };
        turn = turn::apply_report(definition, &mut run, vec![input], at, &memo).unwrap();
        sealed.append(&mut turn.sealed);
    }
    Recorded {
        state,
        details,
        memo,
        sealed,
    }
}
