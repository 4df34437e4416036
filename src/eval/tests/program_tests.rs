//! Checks that run programs, whose programs end as tests have it.

use std::cell::RefCell;

use ktsu_ledger::Hash;
use ktsu_ledger::event::{CheckResult, EvalStatus};
use serde_json::{Value, json};

use super::support::{Run, one_in};
use crate::run_files::audit;
use crate::{CheckProgram, DatabasePlace, ProgramPlaces, ProgramRun, Programs, Workspace};

/// Ends every program alike, and keeps what it was given.
pub(super) struct Ends {
    run: Result<ProgramRun, String>,
    given: RefCell<Vec<String>>,
}

impl Ends {
    pub(super) fn with(end: Result<i32, &str>, output: &str, errors: &str) -> Self {
        Self {
            run: Ok(ProgramRun {
                end: end.map_err(str::to_owned),
                output: output.as_bytes().to_vec(),
                output_bytes: output.len() as u64,
                errors: errors.as_bytes().to_vec(),
                script: Some(Hash::of(b"script")),
            }),
            given: RefCell::default(),
        }
    }
}

impl Workspace for Ends {
    fn read(&self, _: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn exists(&self, _: &str) -> Result<bool, String> {
        Ok(false)
    }

    fn programs(&self) -> Option<&dyn Programs> {
        Some(self)
    }
}

impl Programs for Ends {
    fn places(&self) -> ProgramPlaces {
        ProgramPlaces {
            workspace: "/work".to_owned(),
            audit_log: "/check/audit.jsonl".to_owned(),
            trace: "/check/trace.jsonl".to_owned(),
            databases: [(
                "db".to_owned(),
                DatabasePlace {
                    host: "/services/db".to_owned(),
                    port: 5432,
                    socket: None,
                },
            )]
            .into(),
        }
    }

    fn run(&self, program: &CheckProgram<'_>) -> Result<ProgramRun, String> {
        let given = match program {
            CheckProgram::Command(check) => vec![check.command.clone()],
            CheckProgram::Query(check) => vec![check.query.clone()],
            CheckProgram::Script {
                input,
                audit_log,
                trace,
                ..
            } => [input, audit_log, trace]
                .map(|text| (*text).to_owned())
                .to_vec(),
        };
        self.given.replace(given);
        self.run.clone()
    }

    fn is_interrupted(&self) -> bool {
        false
    }
}

fn command(end: Result<i32, &str>, output: &str, code: i32) -> CheckResult {
    let check = format!("{{type: command_exit, command: npm test, exit_code: {code}}}");
    one_in(&check, Some(&Ends::with(end, output, "")))
}

fn script(end: Result<i32, &str>, output: &str, errors: &str) -> CheckResult {
    let ends = Ends::with(end, output, errors);
    one_in("{type: custom, script: checks/a.py}", Some(&ends))
}

#[test]
fn a_command_passes_with_its_exit_code_and_shows_what_it_printed_otherwise() {
    let passed = command(Ok(0), "fine", 0);
    assert_eq!(
        (passed.status, &*passed.reason),
        (EvalStatus::Passed, "exit code 0")
    );
    assert!(command(Ok(3), "", 3).passed);
    let failed = command(Ok(1), "one\n\u{1b}[31mtwo\n", 0);
    assert_eq!(failed.status, EvalStatus::Failed);
    assert_eq!(
        failed.reason,
        "exit code 1, expected 0; it printed:\none\n\\u{1b}[31mtwo"
    );
    let long = format!("{}the end", "é".repeat(10_000));
    let failed = command(Ok(1), &long, 0);
    assert!(
        failed.reason.ends_with("é".repeat(4_089).as_str()) || failed.reason.ends_with("the end")
    );
    assert!(failed.reason.chars().count() < 4_200 && failed.reason.contains("…é"));
    let ended = command(Err("it took longer than 1s"), "begun", 0);
    assert_eq!(ended.status, EvalStatus::Error);
    assert!(ended.reason.contains("longer than 1s") && ended.reason.contains("begun"));
    // What it rests on: another output, another digest.
    let again = command(Ok(0), "fine", 0);
    assert_eq!(passed.looked_at, again.looked_at);
    assert_ne!(passed.looked_at, command(Ok(0), "other", 0).looked_at);
}

#[test]
fn a_program_needs_a_workspace_and_what_runs_it() {
    let without = one_in("{type: command_exit, command: 'true'}", None);
    assert_eq!(without.status, EvalStatus::Error);
    assert!(without.reason.contains("--workspace DIR"));
    let not_run = Ends {
        run: Err("there is no script".to_owned()),
        given: RefCell::default(),
    };
    let found = one_in("{type: custom, script: a.py}", Some(&not_run));
    assert_eq!(
        (found.status, &*found.reason),
        (EvalStatus::Error, "there is no script")
    );
}

#[test]
fn a_script_says_whether_it_passes_and_how_much() {
    use EvalStatus::{Error, Failed, Passed};
    for (output, status, score, reason) in [
        ("{\"passed\": true}\n", Passed, 1.0, "gives 1"),
        ("{\"passed\": false, \"reason\": \"no\"}", Failed, 0.0, "no"),
        (
            "{\"passed\": false, \"score\": 0.25}",
            Failed,
            0.25,
            "gives 0.25",
        ),
        (
            "{\"passed\": true, \"score\": null, \"details\": {\"n\": 5}}",
            Passed,
            1.0,
            "{\"n\":5}",
        ),
        ("{\"score\": 0.5}", Passed, 0.5, "gives 0.5"),
        ("true", Passed, 1.0, "gives 1"),
        ("false", Failed, 0.0, "gives 0"),
        ("0.5", Passed, 0.5, "gives 0.5"),
        ("0.49", Failed, 0.49, "gives 0.49"),
        ("1.5", Error, 0.0, "from 0 to 1"),
        (
            "{\"passed\": true, \"score\": -1}",
            Error,
            0.0,
            "from 0 to 1",
        ),
        (
            "{\"passed\": false, \"score\": 1}",
            Error,
            0.0,
            "passed is false and score is 1, a contradiction",
        ),
        (
            "{\"passed\": true, \"score\": 0.0}",
            Error,
            0.0,
            "passed is true and score is 0, a contradiction",
        ),
        ("{\"passed\": 1}", Error, 0.0, "not true or false"),
        ("{\"ok\": true}", Error, 0.0, "neither passed nor score"),
        ("[true]", Error, 0.0, "no result"),
        ("passed", Error, 0.0, "did not print JSON"),
        ("true true", Error, 0.0, "did not print JSON"),
        ("", Error, 0.0, "did not print JSON"),
    ] {
        let found = script(Ok(0), output, "ignored");
        let shown = format!("{output}: {}", found.reason);
        assert_eq!(
            (found.status, found.score.get()),
            (status, score),
            "{shown}"
        );
        assert!(found.reason.contains(reason), "{shown}");
        assert_eq!(found.reason.contains("ignored"), status == Error, "{shown}");
    }
    let ended = script(Ok(3), "{\"passed\": true}", "Traceback: no such key");
    assert_eq!(ended.status, Error);
    assert!(ended.reason.contains("exit code 3") && ended.reason.contains("no such key"));
    let stopped = script(Err("it took longer than 1s"), "true", "");
    assert_eq!(stopped.status, Error);
}

#[test]
fn a_script_gets_the_run_in_seven_keys_and_two_files() {
    let ends = Ends::with(Ok(0), "true", "");
    one_in("{type: custom, script: a.py}", Some(&ends));
    let given = ends.given.take();
    let input: Value = serde_json::from_str(&given[0]).unwrap();
    assert_eq!(
        input,
        json!({
            "audit_log_path": "/check/audit.jsonl", "sandbox_id": "run:run_a",
            "scenario_params": {}, "services": {"db": {"host": "/services/db", "port": 5432}}, "task": {"prompt": ""},
            "trace_path": "/check/trace.jsonl", "workspace_path": "/work",
        })
    );
    let lines = |text: &str| -> Vec<Value> {
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    };
    let audit = lines(&given[1]);
    assert!(!audit.is_empty());
    for entry in &audit {
        assert_eq!(entry["type"], "tool_call", "{entry}");
        assert_eq!(
            entry["details"]["tool"].as_str().map(str::is_empty),
            Some(false),
            "{entry}"
        );
    }
    let trace = lines(&given[2]);
    let kinds: Vec<(&str, &str)> = trace
        .iter()
        .map(|entry| {
            (
                entry["event_type"].as_str().unwrap(),
                entry["phase"].as_str().unwrap(),
            )
        })
        .collect();
    assert!(kinds.contains(&("llm_call", "complete")), "{kinds:?}");
    assert!(kinds.contains(&("tool_use", "invoked")), "{kinds:?}");
    assert!(kinds.contains(&("tool_call", "start")), "{kinds:?}");
    assert!(kinds.contains(&("tool_call", "end")), "{kinds:?}");
    let starts = trace.iter().filter(|entry| entry["phase"] == "start");
    for start in starts {
        let of_span = trace
            .iter()
            .filter(|entry| entry["span_id"] == start["span_id"]);
        let phases: Vec<&Value> = of_span.map(|entry| &entry["phase"]).collect();
        assert_eq!(phases, ["start", "end"], "{start}");
        assert_eq!(start.as_object().unwrap().len(), 17, "{start}");
    }
}

#[test]
fn the_audit_log_says_why_a_call_was_not_sent() {
    let mut run = Run::new();
    run.tool_call("pay", Some("approved"));
    let response = run.model_call("pay");
    run.add(
        "tool.returned",
        json!({"attempt": 1, "call": 0, "content": [], "duration_ms": 0, "is_error": true, "not_sent": "rejected",
            "report": {"digest": "d", "n": 3}, "response": response, "step": "pay"}),
    );
    let audit = audit(&run.views(), None).unwrap();
    let reasons = audit.lines().map(|line| {
        let entry: Value = serde_json::from_str(line).unwrap();
        entry["details"]["not_sent"].clone()
    });
    assert_eq!(
        reasons.collect::<Vec<_>>(),
        [json!(null), json!("rejected")]
    );
}
