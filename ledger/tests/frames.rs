//! Frames: what is sealed reads back, in every type, and nothing else reads at all.

#![allow(clippy::unwrap_used)]

#[path = "support/reviews.rs"]
mod reviews;
mod support;
#[path = "support/worlds.rs"]
mod worlds;

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::plan::{
    ApprovalPolicy, ApprovalTimeout, OnReject, SuspendPolicy, TimeoutBehavior, Webhooks,
};
use ktsu_ledger::event::*;
use ktsu_ledger::frame::{MAX_BODY, MAX_INLINE};
use ktsu_ledger::merkle::Node;
use ktsu_ledger::strict::{check_body, check_value};
use ktsu_ledger::{
    Actor, Blob, CanonicalJson, Cause, Draft, Entry, Event, FrameError, FrameHead, Hash, Link,
    Record, Sealed, StreamId, Timestamp,
};
use proptest::prelude::*;
use support::{created, payload, run};

fn json(text: &str) -> CanonicalJson {
    CanonicalJson::parse(text.as_bytes()).unwrap()
}

/// A verdict with all that is optional, a null that was there among it.
fn compared(text: &str, value: &CanonicalJson) -> RecomputeCompared {
    let change = |before: Option<&CanonicalJson>, after: Option<&CanonicalJson>| ValueChange {
        after: after.cloned(),
        before: before.cloned(),
        path: format!("/{text}"),
    };
    RecomputeCompared {
        status: Sameness::ValueChanged,
        tasks: vec![ComparedTask {
            diff: vec![
                change(Some(value), Some(&CanonicalJson::null())),
                change(None, Some(value)),
                change(Some(&CanonicalJson::null()), None),
            ],
            item: Some(3),
            reason: Some(text.to_owned()),
            retryable: Some(true),
            status: Sameness::SchemaViolation,
            step: text.to_owned(),
            violations: vec![Violation {
                message: text.to_owned(),
                path: "/a".to_owned(),
                rule: "type".to_owned(),
            }],
        }],
    }
}

/// Every type, with all that is optional there and with none of it.
fn samples(text: &str, value: &CanonicalJson) -> Vec<Event> {
    let name = || text.to_owned();
    let reference = || Reference {
        frame: 3,
        path: "/output".to_owned(),
    };
    let Event::Run(RunEvent::Created(bare)) = created("w").event else {
        unreachable!("created makes run.created")
    };
    let mut full = bare.clone();
    full.env = BTreeMap::from([
        ("B".to_owned(), EnvValue::Secret),
        ("A".to_owned(), EnvValue::Value(name())),
    ]);
    full.idempotency_digest = Some(name());
    full.idempotency_key = Some(name());
    full.params = value.clone();
    let mut recomputed = full.clone();
    recomputed.of = Some(RecomputeOf {
        head: name(),
        step: Some(name()),
        stream: "run:r".to_owned(),
    });
    let recorded = || RecordedAt {
        seq: 7,
        server: name(),
        stream: "run:r".to_owned(),
        tool: name(),
    };
    recomputed.results = [true, false]
        .map(|full| RecordedResult {
            content: value.clone(),
            digest: name(),
            is_error: full,
            item: 1,
            not_sent: full.then_some(UnsentReason::Rejected),
            recorded: recorded(),
            step: name(),
            structured: full.then(|| value.clone()),
        })
        .to_vec();
    let given = BTreeMap::from([
        ("/b".to_owned(), StepInput::Ref(reference())),
        ("/a".to_owned(), StepInput::Template(name())),
        (
            "/c".to_owned(),
            StepInput::Value {
                from: vec![1, 2],
                value: value.clone(),
            },
        ),
    ]);
    let person = || Principal {
        auth: "none".to_owned(),
        id: name(),
    };
    let word = || RunCommand {
        by: person(),
        reason: Some(name()),
    };
    let answer = |full: bool| WebhookAnswer {
        approval: full.then_some(3),
        attempt: 1,
        code: full.then(name),
        duration_ms: 12,
        response: if full {
            value.clone()
        } else {
            CanonicalJson::null()
        },
        sending: 2,
        status: full.then_some(503),
        step: name(),
        truncated: full,
    };
    let mut events = vec![
        Event::Run(RunEvent::Created(bare.clone())),
        Event::Run(RunEvent::Created(full.clone())),
        Event::Recompute(RecomputeEvent::Created(bare)),
        Event::Recompute(RecomputeEvent::Created(recomputed)),
        Event::Recompute(RecomputeEvent::Compared(RecomputeCompared {
            status: Sameness::Failed,
            tasks: Vec::new(),
        })),
        Event::Recompute(RecomputeEvent::Compared(compared(text, value))),
        Event::Run(RunEvent::Started(RunStarted::default())),
        Event::Run(RunEvent::Started(RunStarted {
            input: BTreeMap::from([(
                "/params/x".to_owned(),
                StepInput::Value {
                    from: vec![1],
                    value: value.clone(),
                },
            )]),
            plan: Some(name()),
            webhooks: Some(Webhooks::Suppress),
        })),
        Event::Run(RunEvent::Continued(Continued {
            why: ContinueReason::Bound,
        })),
        Event::Run(RunEvent::Resumed(RunResumed {
            by: person(),
            from: Some(name()),
            paused_ms: Some(1),
            reason: Some(name()),
        })),
        Event::Run(RunEvent::Paused(word())),
        Event::Run(RunEvent::Cancelled(word())),
        Event::Run(RunEvent::Terminated(word())),
        Event::Run(RunEvent::Branched(Box::new(BranchCreated {
            branch_id: "branch_a".to_owned(),
            by: person(),
            definition: Some(value.clone()),
            digest: Some(name()),
            effects: Effects::Execute,
            engine: name(),
            env: Some(BTreeMap::from([("A".to_owned(), EnvValue::Secret)])),
            fork_position: 5,
            limits: Some(Limits::default()),
            params: Some(value.clone()),
            parent_run_id: "run_of_it".to_owned(),
            reason: Some(name()),
            references: Vec::new(),
            restarts: true,
            rules: 1,
            version: Some(name()),
            workflow: Some(name()),
        }))),
        Event::Run(RunEvent::Branched(Box::new(BranchCreated {
            branch_id: "branch_a".to_owned(),
            by: person(),
            definition: None,
            digest: None,
            effects: Effects::Suppress,
            engine: name(),
            env: None,
            fork_position: 5,
            limits: None,
            params: None,
            parent_run_id: "run_of_it".to_owned(),
            reason: None,
            references: Vec::new(),
            restarts: false,
            rules: 1,
            version: None,
            workflow: None,
        }))),
        Event::Step(StepEvent::Reset(StepReset {
            attempt: 2,
            step: name(),
        })),
        Event::Person(PersonEvent::OverlaySet(OverlaySet {
            by: person(),
            field: name(),
            reason: name(),
            step: name(),
            value: value.clone(),
        })),
        Event::Run(RunEvent::Completed(RunCompleted::default())),
        Event::Run(RunEvent::Completed(RunCompleted {
            output: Some(value.clone()),
            output_from: Some(reference()),
            world: Some(name()),
        })),
        Event::Run(RunEvent::Failed(RunFailed {
            code: name(),
            message: name(),
            step: Some(name()),
            world: Some(name()),
        })),
        Event::Run(RunEvent::TimerFired(TimerFired {
            responder: None,
            step: Some(name()),
            timer: TimerKind::Retry,
        })),
        Event::Run(RunEvent::TimerFired(TimerFired {
            responder: Some(name()),
            step: None,
            timer: TimerKind::After,
        })),
        Event::Run(RunEvent::ClockJumped(ClockJumped {
            clock: Timestamp::from_micros(5),
            last: Timestamp::from_micros(6),
            forward_ms: Some(7),
        })),
        Event::Step(StepEvent::Started(StepStarted {
            attempt: 1,
            input: given,
            step: name(),
            items: None,
            resume_step: Some(name()),
        })),
        Event::Step(StepEvent::OutputChecked(OutputChecked {
            attempt: 1,
            errors: vec![Violation {
                message: name(),
                path: "/a".to_owned(),
                rule: "type".to_owned(),
            }],
            step: name(),
            valid: false,
            item: None,
        })),
        Event::Step(StepEvent::Completed(StepCompleted {
            attempt: 1,
            output: Some(value.clone()),
            output_from: Some(reference()),
            step: name(),
            stripped: Vec::new(),
        })),
        Event::Step(StepEvent::Failed(StepFailed {
            attempt: 1,
            code: name(),
            message: name(),
            raw: Some(value.clone()),
            step: name(),
            raw_from: None,
        })),
        Event::Step(StepEvent::Skipped(StepSkipped {
            detail: Some(name()),
            reason: SkipReason::ConditionFalse,
            step: name(),
        })),
        Event::Webhook(WebhookEvent::Sent(WebhookSent {
            approval: Some(3),
            attempt: 1,
            body_hash: name(),
            delivery_id: name(),
            method: name(),
            sending: 1,
            step: name(),
            target: name(),
        })),
        Event::Webhook(WebhookEvent::Dead(WebhookDead {
            approval: None,
            attempt: 1,
            sendings: 3,
            step: name(),
        })),
        Event::Kv(KvEvent::Set(KvSet {
            idempotency_key: name(),
            key: name(),
            value: value.clone(),
        })),
        Event::Kv(KvEvent::Deleted(KvDeleted {
            idempotency_key: name(),
            key: name(),
        })),
        Event::Delivery(DeliveryEvent::Removed(SubscriptionRemoved { by: person() })),
        Event::Delivery(DeliveryEvent::Advanced(DeliveryAdvanced { position: 41 })),
        Event::Delivery(DeliveryEvent::Redriven(DeliveryRedriven {
            by: person(),
            count: 2,
        })),
        Event::Delivery(DeliveryEvent::Settled(DeliverySettled {
            positions: vec![7, 9],
        })),
        Event::Eval(EvalEvent::Started(Box::new(EvalStarted {
            by: person(),
            checks: value.clone(),
            engine: name(),
            file: name(),
            sandbox: Some(name()),
            spec: name(),
            spec_digest: Hash::of(b"spec"),
            suite: None,
        }))),
        Event::Eval(EvalEvent::Started(Box::new(EvalStarted {
            by: Principal {
                auth: name(),
                id: name(),
            },
            checks: CanonicalJson::null(),
            engine: name(),
            file: name(),
            sandbox: Some(name()),
            spec: name(),
            spec_digest: Hash::of(b"spec"),
            suite: Some(EvalSuite {
                aggregation: ReplicaAggregation::PassHat(PassEstimate {
                    k: 2,
                    threshold: Score::new(0.5),
                }),
                only: Some(name()),
                replicas: 3,
                scenarios: 4,
            }),
        }))),
        Event::Eval(EvalEvent::ScenarioStarted(ScenarioStarted {
            abandoned: vec![run("b")],
            frames: 3,
            head: Hash::of(b"head"),
            replica: 2,
            run: run("a"),
            scenario: 1,
            services: None,
            workspace: None,
        })),
        Event::Eval(EvalEvent::Checked(Box::new(CheckResult {
            check: name(),
            duration_ms: 4,
            gate: true,
            index: 5,
            looked_at: LookedAt {
                count: 2,
                digest: Hash::of(b"looked at"),
                frames: vec![1, 7],
            },
            name: name(),
            passed: false,
            reason: name(),
            replica: 2,
            scenario: 1,
            score: Score::new(0.3),
            status: EvalStatus::Failed,
            weight: Score::new(1e9),
        }))),
        Event::Eval(EvalEvent::ScenarioFinished(ScenarioFinished {
            composite: Score::new(0.769_230_769_231),
            error: Some(name()),
            pass_threshold: Score::new(1.0),
            passed: false,
            replica: 2,
            scenario: 1,
            status: EvalStatus::Error,
        })),
        Event::Eval(EvalEvent::Aggregated(ScenarioAggregated {
            composite: Score::new(0.5),
            estimate: Some(Score::new(0.25)),
            flaky: true,
            passed: false,
            replicas: ReplicaTotals {
                errors: 1,
                failed: 2,
                passed: 3,
            },
            scenario: 1,
            status: EvalStatus::Error,
        })),
        Event::Eval(EvalEvent::Finished(EvalFinished {
            errors: 1,
            failed: 2,
            flaky: 4,
            passed: 3,
            replicas: Some(ReplicaTotals {
                errors: 7,
                failed: 8,
                passed: 9,
            }),
            scenarios: 6,
        })),
        Event::Store(StoreEvent::Opened(StoreOpened {
            engine: name(),
            epoch: 7,
            pid: 1,
        })),
        Event::Store(StoreEvent::Recovered(StoreRecovered {
            resent: 1,
            unfinished: 2,
        })),
        Event::Store(StoreEvent::RunHead(RunHead {
            frames: 12,
            hash: Hash::of(b"last"),
            status: name(),
            stream: StreamId::store(),
        })),
        Event::Store(StoreEvent::CheckpointSigned(CheckpointSigned {
            frontier: vec![Node::leaf(b"a"), Node::leaf(b"b")],
            key: name(),
            note: name(),
            origin: name(),
            root: Node::empty(),
            size: 3,
        })),
        Event::Store(StoreEvent::HoldPlaced(HoldPlaced {
            by: person(),
            reason: name(),
            stream: StreamId::store(),
        })),
        Event::Store(StoreEvent::HoldLifted(HoldLifted {
            by: person(),
            reason: name(),
            stream: StreamId::store(),
        })),
        Event::Store(StoreEvent::RunRemoved(RunRemoved {
            first: 3,
            frames: 2,
            hash: Hash::of(b"last"),
            leaves: name(),
            positions: vec![(7, 2)],
            reason: name(),
            status: name(),
            stream: StreamId::store(),
        })),
        Event::Store(StoreEvent::KeyAdded(KeyAdded {
            id: name(),
            note: name(),
            public_key: name(),
            signed_by: name(),
        })),
        Event::Store(StoreEvent::KeyRevoked(KeyRevoked {
            id: name(),
            note: name(),
            public_key: name(),
            reason: name(),
            signed_by: name(),
        })),
        Event::Foreign {
            kind: "x.kit.fact".to_owned(),
            data: json(r#"{"a":{"b":[1.5,-0.0,18446744073709551615]}}"#),
        },
    ];
    events.extend(reviews::samples(text, value));
    for full in [false, true] {
        events.push(Event::Step(StepEvent::Commanded(StepCommand {
            attempt: 2,
            command: reference(),
            index: 1,
            item: full.then_some(3),
            step: name(),
            suppressed: full,
            target: full.then(name),
            topic: (!full).then(name),
            kind: match full {
                true => CommandKind::Fanout,
                false => CommandKind::Emit,
            },
        })));
        events.push(Event::Step(StepEvent::CommandCompleted(CommandCompleted {
            attempt: 2,
            children: match full {
                true => vec![7, 9],
                false => Vec::new(),
            },
            index: 1,
            item: full.then_some(3),
            request: 6,
            step: name(),
        })));
        events.push(Event::Step(StepEvent::Noted(StepNote {
            attempt: 2,
            event: reference(),
            index: 1,
            item: full.then_some(3),
            step: name(),
            kind: name(),
        })));
        events.push(Event::World(WorldEvent::Commanded(WorldCommand {
            derived: Derivation {
                entry: 1,
                item: full.then_some(2),
                responder: full.then(name),
            },
            payload: match full {
                true => value.clone(),
                false => CanonicalJson::null(),
            },
            suppressed: full,
            topic: name(),
            kind: CommandKind::Emit,
        })));
        events.push(Event::Delivery(DeliveryEvent::Added(SubscriptionAdded {
            attempts: 12,
            backoff_ms: 1_000,
            by: full.then(person),
            from: 3,
            pattern: name(),
            secret: name(),
            topics: full.then(name),
            url: name(),
        })));
        events.push(Event::Delivery(DeliveryEvent::Dead(DeliveryDead {
            attempts: 12,
            code: name(),
            delivery_id: name(),
            position: 41,
            seq: 3,
            status: full.then_some(500),
            stream: StreamId::store(),
        })));
        events.push(Event::Webhook(WebhookEvent::Delivered(answer(full))));
        events.push(Event::Webhook(WebhookEvent::Failed(answer(full))));
        events.extend(samples_of_agents(text, value, full));
    }
    events.extend(worlds::world_samples(text, value));
    events
}

/// Every type about agents, items and workers.
fn samples_of_agents(text: &str, value: &CanonicalJson, full: bool) -> Vec<Event> {
    let name = || text.to_owned();
    let item = full.then_some(2);
    let reference = full.then(|| Reference {
        frame: 3,
        path: "/outcome/output".to_owned(),
    });
    let place = || Reference {
        frame: 2,
        path: "/tool_calls/0/arguments".to_owned(),
    };
    let person = || Principal {
        auth: "none".to_owned(),
        id: name(),
    };
    let report = || ReportReference {
        digest: name(),
        n: 1,
    };
    let metrics = ClaimedMetrics {
        cost_micro_usd: 270,
        llm_calls: 1,
        model: name(),
        reflect_calls: 0,
        tokens_in: 1000,
        tokens_out: 200,
        tool_calls: 0,
    };
    let error = CallError {
        code: name(),
        message: name(),
        retryable: true,
    };
    vec![
        Event::Step(StepEvent::ReservedEvaluated(ReservedEvaluated {
            attempt: 1,
            field: name(),
            item,
            step: name(),
            value: value.clone(),
            verdict: if full {
                Verdict::FailRun
            } else {
                Verdict::Noted
            },
        })),
        Event::Item(ItemEvent::Started(ItemStarted {
            input: BTreeMap::new(),
            item: 2,
            step: name(),
        })),
        Event::Item(ItemEvent::Completed(ItemCompleted {
            attempt: 1,
            item: 2,
            output_from: reference.clone(),
            skipped: full.then(name),
            step: name(),
            stripped: full.then(name).into_iter().collect(),
        })),
        Event::Item(ItemEvent::Failed(ItemFailed {
            attempt: 1,
            code: name(),
            item: 2,
            message: name(),
            raw: full.then(|| value.clone()),
            raw_from: reference,
            step: name(),
        })),
        Event::Agent(AgentEvent::Request(LlmRequest {
            attempt: 1,
            base: full.then_some(4),
            digest: name(),
            group: name(),
            item,
            max_tokens: 1024,
            messages: value.clone(),
            purpose: if full {
                Purpose::Reflect
            } else {
                Purpose::Turn
            },
            report: report(),
            routing: full.then(name),
            step: if full { "@asks.0a".to_owned() } else { name() },
            temperature_millionths: full.then_some(700_000),
            tools: full.then(|| value.clone()),
        })),
        Event::Agent(AgentEvent::Response(Box::new(LlmResponse {
            attempt: 1,
            attempts: vec![
                CallAttempt {
                    duration_ms: 3,
                    model: name(),
                    status: name(),
                    usage: CallUsage {
                        cost_micro_usd: 5,
                        tokens_cached: 1,
                        tokens_in: 2,
                        tokens_out: 3,
                        tokens_reasoning: 4,
                    },
                };
                usize::from(full)
            ],
            cached: full,
            content: full.then(|| CanonicalJson::string(text)),
            cost_micro_usd: 270,
            duration_ms: 12,
            error: (!full).then_some(error),
            input_hash: name(),
            item,
            model: name(),
            output_hash: name(),
            prices: name(),
            provider: name(),
            repeats: full.then_some(2),
            report: (!full).then(report),
            request: 4,
            saved: full.then(CallUsage::default),
            step: name(),
            tokens_cached: if full { 3 } else { 0 },
            tokens_in: 1000,
            tokens_out: 200,
            tokens_reasoning: if full { 4 } else { 0 },
            tool_calls: full.then(|| value.clone()),
            unpriced: full,
        }))),
        Event::Agent(AgentEvent::Decided(AgentDecided {
            attempt: 1,
            draft: full.then(|| value.clone()),
            item,
            report: report(),
            response: (!full).then_some(4),
            step: name(),
        })),
        Event::Agent(AgentEvent::ToolCalled(Box::new(ToolCalled {
            again: full.then_some(4),
            approval: full.then_some(3),
            arguments: place(),
            attempt: 1,
            call: 0,
            digest: name(),
            idempotency_key: name(),
            item,
            report: report(),
            response: 2,
            server: name(),
            step: name(),
            tool: name(),
        }))),
        Event::Agent(AgentEvent::ToolReturned(Box::new(ToolReturned {
            attempt: 1,
            call: 0,
            called: full.then_some(4),
            content: value.clone(),
            duration_ms: 12,
            is_error: full,
            item,
            not_sent: (!full).then_some(UnsentReason::InvalidArguments),
            recorded: full.then(|| {
                Box::new(RecordedAt {
                    seq: 7,
                    server: name(),
                    stream: "run:r".to_owned(),
                    tool: name(),
                })
            }),
            report: report(),
            response: 2,
            step: name(),
            structured: full.then(|| value.clone()),
        }))),
        Event::Agent(AgentEvent::ToolInDoubt(ToolInDoubt {
            attempt: 1,
            called: 4,
            item,
            reason: DoubtReason::WorkerLost,
            report: full.then(report),
            step: name(),
        })),
        Event::Agent(AgentEvent::ApprovalRequested(Box::new(ApprovalRequested {
            arguments: place(),
            attempt: 1,
            call: 0,
            digest: name(),
            item,
            policy: ApprovalPolicy {
                not_by_proposer: full,
                on_reject: OnReject::Recover,
                quorum: 2,
                timeout: full.then_some(ApprovalTimeout {
                    behavior: TimeoutBehavior::Reject,
                    ms: 5000,
                }),
            },
            report: report(),
            response: 2,
            server: name(),
            step: name(),
            tool: name(),
        }))),
        Event::Agent(AgentEvent::ApprovalDecided(Box::new(ApprovalDecided {
            attempt: 1,
            by: person(),
            decision: Decision::Happened,
            digest: name(),
            item,
            reason: full.then(name),
            request: 4,
            result: full.then(name),
            step: name(),
        }))),
        Event::Agent(AgentEvent::ApprovalExpired(ApprovalExpired {
            attempt: 1,
            item,
            request: 4,
            step: name(),
        })),
        Event::Agent(AgentEvent::ReflectStarted(ReflectStarted {
            attempt: 1,
            item,
            step: name(),
        })),
        Event::Agent(AgentEvent::BudgetExhausted(BudgetExhausted {
            attempt: 1,
            cost_micro_usd: 270,
            item,
            limit_micro_usd: 200,
            report: report(),
            step: name(),
        })),
        Event::Agent(AgentEvent::Finished(Box::new(AgentFinished {
            attempt: 1,
            item,
            metrics: full.then_some(metrics),
            outcome: value.clone(),
            reason: if full {
                FinishReason::MaxTurns
            } else {
                FinishReason::Completed
            },
            report: full.then(report),
            step: name(),
        }))),
        Event::Worker(WorkerEvent::Dispatched(WorkerDispatched {
            attempt: 1,
            item,
            step: name(),
        })),
        Event::Worker(WorkerEvent::Lost(WorkerLost {
            attempt: 1,
            item,
            reason: LostReason::Instance,
            runtime_alive: full,
            step: name(),
        })),
    ]
}

/// Where an event may stand: a branch begins with what says so, and with nothing else.
fn stream_of(event: &Event) -> StreamId {
    match event {
        Event::Run(RunEvent::Branched(_)) => "branch:branch_a".parse().unwrap(),
        _ => run("a"),
    }
}

fn seal(event: Event) -> Result<Sealed, FrameError> {
    let stream = stream_of(&event);
    let draft = Draft {
        scope: "call/inner".to_owned(),
        actor: Actor::Principal("ann".to_owned()),
        cause: vec![Cause::Here(1), Cause::There(run("other"), 2)],
        event,
    };
    let link = Link {
        stream,
        seq: 5,
        prev: Hash::of(b"before"),
    };
    draft.seal(link, Timestamp::from_micros(1_790_000_000_123_456))
}

/// Reads a sealed frame as a store would give it back.
fn decode(sealed: &Sealed) -> Result<ktsu_ledger::Frame, FrameError> {
    sealed.record.decode(&mut |wanted| {
        let found = sealed.blobs.iter().find(|blob| blob.hash == *wanted);
        Ok(found.map(|blob: &Blob| blob.text.clone()))
    })
}

fn reads_back(event: Event) {
    let stream = stream_of(&event);
    let sealed = seal(event.clone()).unwrap();
    assert_eq!(sealed.frame.event, event);
    assert_eq!(decode(&sealed).unwrap(), sealed.frame);
    assert_eq!(sealed.record.hash, Hash::of(sealed.record.body.as_bytes()));
    assert_eq!(sealed.frame.hash, sealed.record.hash);
    // Keys sorted at every level of `data` and `ext`, no key twice, numbers that survive.
    assert_eq!(
        check_body(&sealed.record.body),
        Ok(()),
        "{}",
        sealed.record.body
    );
    assert!(sealed.record.body.len() <= MAX_BODY);
    // What is read without the content is what the whole frame says.
    let bare = sealed.record.decode_bare().unwrap();
    assert_eq!(sealed.record.decode_head(), Ok(FrameHead::from(&bare)));
    for blob in &sealed.blobs {
        assert_eq!(check_value(blob.text.as_str()), Ok(()));
    }
    let mut sent = sealed.record.to_json_with(&sealed.frame);
    sent.truncate(sent.len() - 1);
    sent.push_str(r##","id":"run:r#1","source_frame_id":"run:r#0"}"##);
    assert_eq!(
        ktsu_ledger::Frame::from_json(&sent).as_ref(),
        Ok(&sealed.frame)
    );
    let shown: serde_json::Value = serde_json::from_str(&sealed.record.to_json()).unwrap();
    assert_eq!(shown["hash"], sealed.record.hash.to_string());
    // The door takes what is sealed, from memory and from bytes.
    let records = vec![sealed.record.clone()];
    let read = Entry::from_records(&stream, records, sealed.blobs.clone()).unwrap();
    assert_eq!(Entry::from_sealed(vec![sealed]).unwrap().0, read);
}

#[test]
fn a_definition_and_a_lock_are_blobs_whatever_their_size_and_whatever_else_moves_out() {
    let text = |bytes: usize| CanonicalJson::string(&"x".repeat(bytes));
    let paths = |definition: usize, lock: Option<usize>, params: usize| {
        let found = samples("s", &text(params))
            .into_iter()
            .find_map(|event| match event {
                Event::Run(RunEvent::Created(created)) => Some(created),
                _ => None,
            });
        let mut created = found.unwrap();
        created.definition = text(definition);
        created.lock = lock.map(text);
        created.params = text(params);
        let event = Event::Run(RunEvent::Created(created));
        reads_back(event.clone());
        let ext = seal(event).unwrap().frame.ext;
        let named = ext.into_iter().map(|one| (one.path, one.bytes));
        named.collect::<Vec<_>>()
    };
    let at = |path: &str, bytes: u64| (path.to_owned(), bytes + 2);
    assert_eq!(paths(5, None, 5), [at("/definition", 5)]);
    assert_eq!(
        paths(100_000, Some(7), 60_000),
        [at("/definition", 100_000), at("/lock", 7)]
    );
    assert_eq!(
        paths(5, Some(100_000), 70_000),
        [
            at("/definition", 5),
            at("/lock", 100_000),
            at("/params", 70_000)
        ]
    );
}

#[test]
fn there_is_a_sample_of_every_type() {
    let seen: BTreeSet<String> = samples("s", &CanonicalJson::null())
        .iter()
        .filter(|event| event.is_known())
        .map(|event| event.kind().to_owned())
        .filter(|kind| !kind.starts_with("x."))
        .collect();
    let declared: BTreeSet<String> = Event::KINDS.iter().map(|&kind| kind.to_owned()).collect();
    assert_eq!(seen, declared);
}

fn values() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<f64>()
            .prop_filter("beyond what is kept", |number| number.abs() < 9e18)
            .prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ktsu_campaign::config(64))]

    #[test]
    fn every_type_reads_back(text in any::<String>(), value in values()) {
        for event in samples(&text, &CanonicalJson::from_value(&value).unwrap()) {
            // An absent output and a null one are the same to an event that may lack it.
            if !value.is_null() {
                reads_back(event);
            }
        }
    }

    #[test]
    fn garbage_is_refused_and_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let body = String::from_utf8_lossy(&bytes).into_owned();
        let hash = Hash::of(body.as_bytes());
        let record = Record { seq: 0, hash, body };
        prop_assert!(record.decode_bare().is_err());
        prop_assert!(record.decode_head().is_err());
    }

    #[test]
    fn a_changed_body_never_panics_and_is_never_taken(
        place in any::<prop::sample::Index>(),
        change in any::<char>(),
        which in any::<prop::sample::Index>(),
    ) {
        let events = samples("step", &json(r#"{"a":[1,"x"]}"#));
        let sealed = seal(events[which.index(events.len())].clone()).unwrap();
        let mut letters: Vec<char> = sealed.record.body.chars().collect();
        let place = place.index(letters.len());
        letters[place] = change;
        let mut record = sealed.record.clone();
        record.body = letters.into_iter().collect();
        let read = record.decode_bare();
        prop_assert!(read.is_err() || record.decode_head().is_ok());
        if record.body != sealed.record.body {
            let taken = Entry::from_records(&run("a"), vec![record], sealed.blobs);
            prop_assert!(taken.is_err(), "{read:?}");
        }
    }
}

#[test]
fn large_members_move_out_and_come_back() {
    let large = payload(MAX_INLINE + 1, 1);
    let names = |sealed: &Sealed| -> Vec<String> {
        let ext = sealed.frame.ext.iter();
        ext.map(|external| external.path.clone()).collect()
    };
    let event = |output: &CanonicalJson| support::completed("s", output.clone()).event;
    let sealed = seal(event(&large)).unwrap();
    assert_eq!(names(&sealed), vec!["/output"]);
    assert!(sealed.record.body.contains(r#""output":null"#));
    reads_back(event(&large));
    // Just small enough to stay: the quotes count.
    let small = seal(event(&payload(MAX_INLINE - 2, 1))).unwrap();
    assert_eq!(names(&small), Vec::<String>::new());
    // A definition moves whatever its size, so that runs share it.
    assert_eq!(
        names(&seal(created("w").event).unwrap()),
        vec!["/definition"]
    );
    // Without its blob a frame does not read.
    let missing: Result<_, FrameError> = sealed.record.decode(&mut |_| Ok(None));
    assert_eq!(missing, Err(FrameError::MissingBlob(sealed.blobs[0].hash)));
}

#[test]
fn collections_move_out_and_come_back() {
    let large = payload(MAX_INLINE + 1, 2);
    let input = StepInput::Value {
        from: vec![1],
        value: large.clone(),
    };
    let violation = Violation {
        message: large.as_str().to_owned(),
        path: String::new(),
        rule: "type".to_owned(),
    };
    let Event::Run(RunEvent::Created(mut with_env)) = created("w").event else {
        unreachable!("created makes run.created")
    };
    let value = EnvValue::Value(large.as_str().to_owned());
    with_env.env.insert("A".to_owned(), value);
    for event in [
        Event::Run(RunEvent::Created(with_env)),
        Event::Step(StepEvent::Started(StepStarted {
            attempt: 1,
            input: BTreeMap::from([("/a".to_owned(), input)]),
            step: "s".to_owned(),
            items: None,
            resume_step: None,
        })),
        Event::Step(StepEvent::OutputChecked(OutputChecked {
            attempt: 1,
            errors: vec![violation],
            step: "s".to_owned(),
            valid: false,
            item: None,
        })),
        Event::Step(StepEvent::SuspendRequested(SuspendRequested {
            attempt: 1,
            command: 3,
            policy: SuspendPolicy {
                roles: Vec::new(),
                schema: Some(large.clone()),
                timeout_ms: 1000,
            },
            step: "s".to_owned(),
        })),
        // Of members that are there even if they are empty.
        Event::Eval(EvalEvent::Started(Box::new(EvalStarted {
            by: Principal {
                auth: "none".to_owned(),
                id: "local".to_owned(),
            },
            checks: large.clone(),
            engine: "ktsu".to_owned(),
            file: "a".to_owned(),
            sandbox: None,
            spec: "s".repeat(MAX_INLINE),
            spec_digest: Hash::of(b"spec"),
            suite: None,
        }))),
    ] {
        assert!(!seal(event.clone()).unwrap().blobs.is_empty());
        reads_back(event);
    }
}

#[test]
fn the_removal_of_a_long_run_reads_back() {
    let event = Event::Store(StoreEvent::RunRemoved(RunRemoved {
        first: 0,
        frames: 20_000,
        hash: Hash::of(b"last"),
        leaves: "l".repeat(MAX_INLINE),
        positions: (0..20_000).map(|at| (at * 2, 1)).collect(),
        reason: RETENTION.to_owned(),
        status: "complete".to_owned(),
        stream: run("a"),
    }));
    let sealed = seal(event.clone()).unwrap();
    assert_eq!(sealed.blobs.len(), 2);
    assert!(decode(&sealed).unwrap().event == event);
}

#[test]
fn members_with_odd_names_move_out_and_come_back() {
    for name in ["a/b", "c~d", "~1", "", "e\\\"f"] {
        let data = serde_json::json!({ name: "y".repeat(MAX_INLINE + 1), "z": 1 });
        let event = Event::Foreign {
            kind: "x.kit.large".to_owned(),
            data: CanonicalJson::from_value(&data).unwrap(),
        };
        assert_eq!(seal(event.clone()).unwrap().frame.ext.len(), 1);
        reads_back(event);
    }
}

#[test]
fn many_middling_members_move_until_the_frame_fits_and_crumbs_are_refused() {
    let of = |count: usize, bytes: usize| {
        let members = (0..count).map(|place| (format!("m{place}"), "y".repeat(bytes).into()));
        Event::Foreign {
            kind: "x.kit.large".to_owned(),
            data: CanonicalJson::from_value(&serde_json::Value::Object(members.collect())).unwrap(),
        }
    };
    let sealed = seal(of(10, 60_000)).unwrap();
    assert!((6..=7).contains(&sealed.frame.ext.len()));
    reads_back(of(10, 60_000));
    let refused = seal(of(2_000, 200));
    assert!(matches!(refused, Err(FrameError::TooLarge(bytes)) if bytes > MAX_BODY));
}

#[test]
fn an_unknown_version_or_type_is_distinguished_from_damage() {
    let sealed = seal(support::ended().event).unwrap();
    let with = |from: &str, to: &str| Record {
        body: sealed.record.body.replace(from, to),
        ..sealed.record.clone()
    };
    let newer = with(r#"{"v":1"#, r#"{"v":2"#).decode_bare();
    assert_eq!(newer, Err(FrameError::Version(2)));
    let unknown = with("run.completed", "run.danced").decode_bare().unwrap();
    assert!(!unknown.event.is_known());
    let kits = with("run.completed", "x.kit.danced").decode_bare().unwrap();
    assert!(kits.event.is_known());
}

#[test]
fn an_entry_that_is_wrong_in_itself_cannot_be_made() {
    use ktsu_ledger::store::EntryError;
    let chain = || support::seal(&run("a"), None, vec![support::ended(); 3]);
    assert_eq!(
        Entry::from_sealed(Vec::new()).map(drop),
        Err(EntryError::Empty)
    );
    let misplaced = |sealed: Vec<Sealed>| {
        let made = Entry::from_sealed(sealed).map(drop);
        assert!(
            matches!(made, Err(EntryError::Misplaced { .. })),
            "{made:?}"
        );
    };
    let mut gap = chain();
    gap.remove(1);
    misplaced(gap);
    let mut swapped = chain();
    swapped.swap(1, 2);
    misplaced(swapped);
    let mut changed = chain();
    changed[1].record.body.push(' ');
    misplaced(changed);
    let mut other = chain();
    other.push(support::seal(&run("b"), None, vec![support::ended()]).remove(0));
    misplaced(other);
    let itself = support::caused(support::ended(), vec![Cause::Here(0)]);
    misplaced(support::seal(&run("a"), None, vec![itself]));
    let unknown = Event::Foreign {
        kind: "run.danced".to_owned(),
        data: CanonicalJson::null(),
    };
    let made = Entry::from_sealed(vec![seal(unknown).unwrap()]).map(drop);
    assert!(
        matches!(made, Err(EntryError::UnknownType { .. })),
        "{made:?}"
    );
}
