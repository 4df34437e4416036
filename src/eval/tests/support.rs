//! Frames, specs and workspaces to test with.

use std::collections::BTreeMap;
use std::path::Path;

use ktsu_config::fault::{Fault, Faults};
use ktsu_config::render;
use ktsu_ledger::{Hash, Record};
use serde_json::{Value, json};

use ktsu_ledger::event::CheckResult;

use crate::{EvalSpec, FrameFold, FrameView, Subject, Workspace, judge};

pub(super) fn parse(text: &str) -> Result<(EvalSpec, Vec<Fault>), Faults> {
    EvalSpec::parse(Path::new("evals/a.eval.yaml"), text)
}

/// A spec, or how its faults are shown.
pub(super) fn spec(text: &str) -> EvalSpec {
    let read = parse(text).map_err(|faults| render::text(&faults, false));
    read.unwrap_or_else(|words| panic!("{words}")).0
}

/// The faults of a spec: line, column and message with its hint.
pub(super) fn faults(text: &str) -> Vec<(usize, usize, String)> {
    let faults = parse(text).map(|_| ()).unwrap_err();
    let errors = faults.faults.iter();
    let errors = errors.filter(|fault| fault.severity == ktsu_config::fault::Severity::Error);
    let shown = errors.map(|fault| {
        let hint = fault.hint.as_deref().unwrap_or_default();
        (
            fault.line,
            fault.column,
            format!("{} | {hint}", fault.message),
        )
    });
    shown.collect()
}

/// A run in the making.
pub(super) struct Run {
    frames: Vec<(Record, ktsu_ledger::Frame)>,
}

impl Run {
    pub(super) fn new() -> Self {
        Self { frames: Vec::new() }
    }

    /// Adds a frame, one second after the one before it.
    pub(super) fn add(&mut self, kind: &str, data: Value) -> u64 {
        self.add_by(kind, "orchestrator", data)
    }

    pub(super) fn add_by(&mut self, kind: &str, actor: &str, data: Value) -> u64 {
        let seq = self.frames.len() as u64;
        let cause = seq.checked_sub(1).into_iter().collect::<Vec<_>>();
        let at = format!("2026-01-01T00:{:02}:{:02}.000000Z", seq / 60 % 60, seq % 60);
        let body = format!(
            r#"{{"v":1,"stream":"run:run_a","seq":{seq},"type":"{kind}","scope":"","actor":"{actor}","cause":{},"at":"{at}","data":{data},"ext":[],"prev":"{}"}}"#,
            json!(cause),
            Hash::ZERO
        );
        let record = Record {
            seq,
            hash: Hash::of(body.as_bytes()),
            body,
        };
        let frame = record.decode_bare().unwrap();
        self.frames.push((record, frame));
        seq
    }

    /// A model call of the step `pay` that asks for a call of a tool.
    pub(super) fn model_call(&mut self, tool: &str) -> u64 {
        let report = json!({"digest": "d", "n": 1});
        let request = self.add(
            "llm.request",
            json!({"attempt": 1, "digest": "q", "group": "fast", "max_tokens": 10, "messages": [],
                "purpose": "turn", "report": report, "step": "pay"}),
        );
        self.add(
            "llm.response",
            json!({"attempt": 1, "cost_micro_usd": 40_000, "duration_ms": 1, "input_hash": "i",
                "model": "small", "output_hash": "o", "provider": "p", "report": report,
                "request": request, "step": "pay", "tokens_in": 1, "tokens_out": 1,
                "tool_calls": [{"id": "c1", "name": tool, "arguments": {"amount": 7}}]}),
        )
    }

    /// A call of a tool of `bank`, which people are asked about if there is a decision.
    pub(super) fn tool_call(&mut self, tool: &str, decision: Option<&str>) {
        let response = self.model_call(tool);
        let report = json!({"digest": "d", "n": 2});
        let digest = Hash::of(br#"{"amount":7}"#).to_string();
        let arguments = json!({"frame": response, "path": "/tool_calls/0/arguments"});
        let asked = decision.map(|decision| {
            let policy = json!({"not_by_proposer": false, "on_reject": "fail", "quorum": 1});
            let asked = self.add(
                "approval.requested",
                json!({"arguments": arguments, "attempt": 1, "call": 0, "digest": digest,
                    "policy": policy, "report": report, "response": response, "server": "bank",
                    "step": "pay", "tool": tool}),
            );
            self.add_by(
                "approval.decided",
                "principal:ann",
                json!({"attempt": 1, "by": {"auth": "token", "id": "ann"}, "decision": decision,
                    "digest": digest, "request": asked, "step": "pay"}),
            );
            asked
        });
        let mut data = json!({"arguments": arguments, "attempt": 1, "call": 0, "digest": digest,
            "idempotency_key": "k", "report": report, "response": response, "server": "bank",
            "step": "pay", "tool": tool});
        if let Some(asked) = asked {
            data["approval"] = asked.into();
        }
        let called = self.add("tool.called", data);
        self.add(
            "tool.returned",
            json!({"attempt": 1, "call": 0, "called": called, "content": [], "duration_ms": 1,
                "report": report, "response": response, "step": "pay"}),
        );
    }

    pub(super) fn views(&self) -> Vec<FrameView> {
        let frames = self.frames.iter().map(|(record, frame)| (record, frame));
        FrameFold::views(frames).unwrap()
    }
}

/// A run that looks a price up, and pays after an approval.
pub(super) fn paid() -> Vec<FrameView> {
    let mut run = Run::new();
    run.tool_call("look_up", None);
    run.tool_call("pay", Some("approved"));
    run.views()
}

/// Files in memory; `locked` cannot be read.
pub(super) struct Files(BTreeMap<&'static str, &'static str>);

impl Files {
    pub(super) fn new(files: &[(&'static str, &'static str)]) -> Self {
        Self(files.iter().copied().collect())
    }
}

impl Workspace for Files {
    fn read(&self, relative: &str) -> Result<Option<Vec<u8>>, String> {
        match relative {
            "locked" => Err("permission denied".to_owned()),
            path => Ok(self.0.get(path).map(|text| text.as_bytes().to_vec())),
        }
    }

    fn exists(&self, relative: &str) -> Result<bool, String> {
        self.read(relative).map(|found| found.is_some())
    }
}

/// An envelope with an output.
pub(super) fn envelope() -> Value {
    json!({"run_id": "run_a", "status": "complete", "output": {"team": "network", "score": 4,
        "tags": ["vpn", "urgent"], "none": []}, "steps": [{"id": "pay", "status": "complete"}],
        "totals": {"duration_ms": 9_000}})
}

/// The results of a file's checks of the run that paid.
pub(super) fn results(text: &str, workspace: Option<&dyn Workspace>) -> Vec<CheckResult> {
    let frames = paid();
    let envelope = envelope();
    let subject = Subject {
        envelope: &envelope,
        frames: &frames,
        workspace,
        services: None,
        replies: None,
    };
    judge(&spec(text), &subject)
}

/// The result of one check, written as the map it is.
pub(super) fn one(check: &str) -> CheckResult {
    one_in(check, None)
}

pub(super) fn one_in(check: &str, workspace: Option<&dyn Workspace>) -> CheckResult {
    let text = format!("invariants:\n  a: {{description: d, check: {check}}}\n");
    results(&text, workspace).swap_remove(0)
}
