//! Hints for what other engines write, and for keys that are close to ours.

use super::{kit, load};

const AGENT: &str = "name: a\nversion: 1.0.0\nmodel: m\nprompt: {system: s}\n\
    output: {schema: {type: object}}\n";
const CLOSED: &str = "name: c\nversion: 1.0.0\nmodel: m\nprompt: {system: s}\n\
    output: {schema: {type: object, additionalProperties: false, properties: {text: {type: string}}}}\n";

/// What is wrong with a workflow with two agents, one of an open schema.
fn faults_of(rest: &str) -> String {
    let workflow = format!(
        "kind: workflow\nname: w\nversion: 1.0.0\nenv: [{{name: URL, default: 'http://x'}}, {{name: KEY, secret: true}}]\npipeline:\n  \
         - {{id: open, agent: agents/a.agent.yaml}}\n  - {{id: shut, agent: agents/c.agent.yaml}}\n{rest}"
    );
    let dir = kit(&[
        ("workflows/w.workflow.yaml", &workflow),
        ("agents/a.agent.yaml", AGENT),
        ("agents/c.agent.yaml", CLOSED),
    ]);
    match load(dir.path()) {
        Ok(kit) => kit.warnings.to_string(),
        Err(faults) => faults.to_string(),
    }
}

fn sends(text: &str) -> String {
    format!("  - {{id: tell, webhook: {{url: '{{{{ env.URL }}}}', body: {{t: '{text}'}}}}}}\n")
}

#[test]
fn a_step_as_other_engines_name_it_is_answered_with_the_name_here() {
    for (text, hint) in [
        ("{{ steps.shut.text }}", "did you mean step.shut.text?"),
        ("so {{ steps.open.a.b }}!", "did you mean step.open.a.b?"),
        (
            "{{ step.shut.output.text }}",
            "did you mean step.shut.text?",
        ),
        ("{{ step.open.output.a.b }}", "did you mean step.open.a.b?"),
        ("{{ open.output }}", "did you mean open?"),
    ] {
        let faults = faults_of(&sends(text));
        assert!(faults.contains(hint), "{text}: {faults}");
    }
    let output = faults_of("output: {map: {a: '{{ steps.open.x }}'}}\n");
    assert!(output.contains("did you mean step.open.x?"), "{output}");
    assert_eq!(
        faults_of(&sends("{{ step.open.a }}{{ step.shut.text }}")),
        ""
    );
}

#[test]
fn a_summary_may_name_any_step_and_is_no_dependency_but_nothing_that_is_not_there() {
    let with = |summary: &str| {
        faults_of(&format!(
            "  - {{id: last, depends_on: [open], agent: agents/a.agent.yaml, summary: '{summary}'}}\n"
        ))
    };
    for sound in [
        "of {{ step.shut.text }}",
        "{{ step.last.x }}",
        "{{ params.a }} for {{ env.URL }}",
        "plain",
    ] {
        assert_eq!(with(sound), "", "{sound}");
    }
    for (faulty, words) in [
        ("{{ step.sut.text }}", "did you mean shut?"),
        ("{{ item.a }}", "item exists in the params and the summary"),
        ("{{ resume.data }}", "resume exists in"),
        ("{{ env.ULR }}", "did you mean URL?"),
        ("{{ step.", "bad template"),
        (
            "{{ env.KEY }}",
            "the secret \"KEY\" cannot be used in a summary",
        ),
    ] {
        let faults = with(faulty);
        assert!(faults.contains(words), "{faulty}: {faults}");
    }
}

#[test]
fn fields_beside_the_map_of_an_output_belong_under_it() {
    let summary = faults_of("output: {summary: '{{ step.shut.text }}'}\n");
    assert!(summary.contains("put it under `map:`"), "{summary}");
    let mistyped = faults_of("output: {mpa: {a: '{{ step.shut.text }}'}}\n");
    assert!(mistyped.contains("did you mean map?"), "{mistyped}");
    // `from` does not exist: no hint names it.
    for key in ["form", "frm", "other"] {
        let faults = faults_of(&format!("output: {{{key}: x}}\n"));
        assert!(!faults.contains("from"), "{faults}");
    }
}

/// What is wrong with an agent whose commands are these.
fn commanded(commands: &str) -> String {
    let agent = format!("{AGENT}commands: {commands}\n");
    let dir = kit(&[
        (
            "workflows/w.workflow.yaml",
            "kind: workflow\nname: w\nversion: 1.0.0\npipeline: [{id: a, agent: agents/a.agent.yaml}]\n",
        ),
        ("agents/a.agent.yaml", &agent),
    ]);
    match load(dir.path()) {
        Ok(kit) => kit.warnings.to_string(),
        Err(faults) => faults.to_string(),
    }
}

#[test]
fn a_slip_in_what_an_agent_declares_is_no_fault_of_the_steps_that_rely_on_it() {
    let agent = format!("{AGENT}commands: {{suspend: {{timeuot: 1d}}}}\n");
    let flow = "kind: workflow\nname: w\nversion: 1.0.0\npipeline:\n  \
        - {id: a, agent: agents/a.agent.yaml, resume: {schema: {type: object}}}\n";
    let dir = kit(&[
        ("workflows/w.workflow.yaml", flow),
        ("agents/a.agent.yaml", &agent),
    ]);
    let faults = load(dir.path()).unwrap_err();
    let found: Vec<&str> = faults
        .faults
        .iter()
        .map(|one| one.message.as_str())
        .collect();
    assert_eq!(found, ["unknown key \"timeuot\" in suspend"]);
}

#[test]
fn a_review_that_is_left_empty_is_an_error_that_says_what_to_write() {
    for empty in ["{review: }", "{emit: [a.b], review: null}", "{review: ~}"] {
        let faults = commanded(empty);
        let column = 11 + empty.find("review").unwrap();
        assert!(
            faults.contains(&format!("a.agent.yaml:6:{column}")),
            "{faults}"
        );
        for words in ["\"review\" is left empty", "review: true"] {
            assert!(faults.contains(words), "{empty}: {faults}");
        }
    }
    assert_eq!(commanded("{review: true}"), "");
    assert_eq!(commanded("{review: false}"), "");
}

#[test]
fn a_review_as_people_may_write_it_is_answered_with_what_to_type() {
    for (written, hint) in [
        ("yes", "review: true"),
        ("on", "review: true"),
        ("1", "review: true"),
        ("required", "review: true"),
        ("no", "review: false"),
        ("off", "review: false"),
        ("[approver]", "review: {roles: [approver]}"),
        ("{roles: []}", "leave roles out"),
        ("{roles: approver}", "roles: [approver]"),
        ("{not_by_proposer: yes}", "not_by_proposer: true"),
        ("{timeout: 7d}", "timeout: 168h"),
        ("{timeout: 2w}", "timeout: 336h"),
        ("{timeout: 90 min}", "timeout: 90m"),
        ("{timeout: 7 days}", "timeout: 168h"),
        ("{timeout: '30'}", "with a unit: 30s"),
    ] {
        let faults = commanded(&format!("{{review: {written}}}"));
        assert!(faults.contains("a.agent.yaml:6:"), "{written}: {faults}");
        assert!(faults.contains(hint), "{written}: {faults}");
    }
    let listed = commanded("[review]");
    assert!(listed.contains("commands: {review: true}"), "{listed}");
}
