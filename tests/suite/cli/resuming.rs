//! A step that is resumed to another, over the command line: locked, traced, replayed, recomputed, kept as
//! a baseline, and exported as evidence.

use super::Desk;
use crate::suspensions::resume_steps::seeking_kit;

#[test]
fn a_step_that_is_resumed_to_another_is_the_same_in_every_look_back() {
    let desk = Desk::new();
    let kit = seeking_kit();
    let dir = kit.dir.path().to_str().unwrap();
    desk.ktsu(&["lock", dir]).is(0);
    let lock = std::fs::read_to_string(kit.dir.path().join("ktsu.lock.yaml")).unwrap();
    assert!(lock.contains("agents/reader.agent.yaml"), "{lock}");
    let answers = desk.path().join("answers.yaml");
    let text = "people: [{by: ann, data: {text: clause 7}}]";
    std::fs::write(&answers, text).unwrap();
    let answers = answers.to_str().unwrap();
    let run = desk.ktsu(&[
        "run",
        dir,
        "--input",
        "{}",
        "--locked",
        "--answers",
        answers,
        "--json",
    ]);
    let envelope = run.is(0).json();
    let verdict = "read x clause 7 of contract";
    assert_eq!(envelope["output"]["verdict"], verdict, "{envelope:#}");
    let id = envelope["run_id"].as_str().unwrap();
    desk.ktsu(&["verify"]).is(0);
    desk.ktsu(&["replay", "--strict", "--all"]).is(0);
    desk.ktsu(&["replay", id, "--against", dir]).is(0);
    desk.ktsu(&["recompute", id, "--kit", dir])
        .is(0)
        .says("verdict clean");
    desk.ktsu(&["trace", id]).is(0).says("attempt 2, by read");
    desk.ktsu(&["trace", id, "--of", "output.verdict"])
        .is(0)
        .says("resumed to step read");
    desk.ktsu(&["trace", id, "--why-not", "read"])
        .is(0)
        .says("step a was, and has its output");
    desk.ktsu(&["capture", id, "-o", "base"])
        .is(0)
        .says("read.baseline.json");
    desk.ktsu(&["test", "base", "--kit", dir]).is(0);
    let bundle = desk.path().join("run.evidence");
    let bundle = bundle.to_str().unwrap();
    desk.ktsu(&["evidence", "export", id, "-o", bundle]).is(0);
    desk.ktsu(&["evidence", "verify", bundle]).is(0);

    let flow = kit.dir.path().join("workflows/seeks.workflow.yaml");
    let other = std::fs::read_to_string(&flow).unwrap();
    let other = other.replace(
        "'{{ resume.data.text }}'",
        "'{{ resume.checkpoint.paper }}'",
    );
    std::fs::write(&flow, other).unwrap();
    let differs = desk.ktsu(&["replay", id, "--against", dir]);
    differs.is(1).says("a");
}
