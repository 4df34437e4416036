use serde_json::{Value, json};

use super::*;
use crate::plans_tests::{agent, child, plan, workflow};

fn definition() -> Definition {
    let main = workflow(
        "main",
        json!([
            agent("ask", json!([]), "asks", json!({})),
            agent("again", json!([0]), "asks", json!({})),
            child("call", json!([1]), "inner", json!({})),
            agent("open", json!([]), "open", json!({})),
        ]),
    );
    let inner = json!([agent("deep", json!([]), "reflects", json!({}))]);
    let mut plan = plan(json!({"main": main, "inner": workflow("inner", inner)}));
    let file = |params: Value| {
        json!({"group": "std", "max_turns": 10, "name": "asks", "version": "1.0.0",
            "output": {"type": "object"}, "params": params,
            "prompt": {"system": "s", "user": "{{ params.ticket }}"}})
    };
    let properties = json!({"ticket": {}, "key": {"secret": true}});
    plan["agents"]["asks"] = file(json!({"additionalProperties": false, "properties": properties}));
    plan["agents"]["open"] = file(json!({"properties": properties}));
    Definition::compile(serde_json::from_value(plan).unwrap()).unwrap()
}

fn edits(of: &[(&str, PromptName, &str)]) -> PromptEdits {
    let mut edits = PromptEdits::new();
    for (agent, prompt, text) in of {
        let prompts = edits.entry((*agent).to_owned()).or_default();
        prompts.insert(*prompt, (*text).to_owned());
    }
    edits
}

fn edited(of: &[(&str, PromptName, &str)]) -> Option<(Definition, ChangedPrompts)> {
    edited_definition(&definition(), &edits(of)).unwrap()
}

fn refused(of: &[(&str, PromptName, &str)]) -> PromptEditError {
    edited_definition(&definition(), &edits(of)).unwrap_err()
}

#[test]
fn a_prompt_is_edited_by_the_step_or_the_agent_and_nothing_else_changes() {
    let before = definition();
    for agent in ["ask", "again", "asks"] {
        let (after, changed) = edited(&[(agent, PromptName::System, "new")]).unwrap();
        assert_eq!(after.plan.agents["asks"].prompt.system, "new", "{agent}");
        let expected = BTreeSet::from([PromptName::System]);
        assert_eq!(
            changed,
            ChangedPrompts::from([("asks".to_owned(), expected)])
        );
        assert_ne!(after.digest, before.digest);
        assert!(differ_in_prompts_alone(&before.plan, &after.plan));
        let mut plan = after.plan.clone();
        plan.agents = before.plan.agents.clone();
        assert_eq!(plan, before.plan, "{agent}");
    }
    let (after, _) = edited(&[("call/deep", PromptName::Reflect, "look")]).unwrap();
    let reflect = after.plan.agents["reflects"].prompt.reflect.as_deref();
    assert_eq!(reflect, Some("look"));
    let mut other = before.plan.clone();
    Arc::make_mut(other.agents.get_mut("asks").unwrap()).max_turns = 3;
    assert!(!differ_in_prompts_alone(&before.plan, &other));
}

#[test]
fn prompts_that_are_as_recorded_change_nothing() {
    let same = [
        ("ask", PromptName::System, "s"),
        ("ask", PromptName::User, "{{ params.ticket }}"),
    ];
    assert!(edited(&same).is_none());
    assert!(edited(&[]).is_none());
}

#[test]
fn a_fault_is_at_its_line_and_column_with_what_to_type() {
    for (prompt, text, place, words, hint) in [
        (
            PromptName::User,
            "a\nbé {{ params.tickt }}",
            Some((2, 14)),
            "do not declare \"tickt\"",
            "did you mean ticket?",
        ),
        (
            PromptName::User,
            "a\n{{ }}",
            Some((2, 1)),
            "no expression",
            "text with braces",
        ),
        (
            PromptName::User,
            "x {{ params.ticket",
            Some((1, 3)),
            "never closed",
            "",
        ),
        (
            PromptName::User,
            "{{ params.key }}",
            Some((1, 11)),
            "secret param",
            "a model never sees them",
        ),
        (
            PromptName::User,
            "{{ env.TOKEN }}",
            Some((1, 8)),
            "not env.TOKEN",
            "write {{ params.NAME }}",
        ),
        (
            PromptName::User,
            "{{ step.ask.x }}",
            Some((1, 9)),
            "the step \"ask\"",
            "write {{ params.NAME }}",
        ),
        (
            PromptName::System,
            "one\ntwo {{ params.ticket }}",
            Some((2, 5)),
            "static",
            "prompt.user",
        ),
        (PromptName::System, " \n", None, "empty", ""),
        (PromptName::Reflect, "look", None, "no such prompt", ""),
    ] {
        let error = refused(&[("ask", prompt, text)]);
        let fault = &error.0[0];
        assert_eq!(
            (fault.prompt, fault.place),
            (Some(prompt), place),
            "{text}: {error}"
        );
        assert!(fault.words.contains(words), "{text}: {error}");
        let given = fault.hint.clone().unwrap_or_default();
        assert!(given.contains(hint), "{text}: {given}");
        let violation = &error.violations()[0];
        assert_eq!(violation.path, format!("/prompts/ask/{}", prompt.as_str()));
        let line = place.map_or_else(String::new, |(line, column)| {
            format!("line {line}, column {column}: ")
        });
        assert!(violation.message.starts_with(&line), "{violation:?}");
    }
}

#[test]
fn a_param_that_is_left_open_may_be_undeclared_but_not_misspelt() {
    assert!(edited(&[("open", PromptName::User, "{{ params.another }}")]).is_some());
    let error = refused(&[("open", PromptName::User, "{{ params.tickte }}")]);
    assert_eq!(error.hint(), Some("did you mean ticket?"));
}

#[test]
fn an_agent_that_is_unknown_or_has_no_prompts_is_named_with_the_nearest() {
    let error = refused(&[("call/dep", PromptName::System, "x")]);
    assert_eq!(error.hint(), Some("did you mean call/deep?"), "{error}");
    for (named, words) in [
        ("call", "asks no model"),
        ("ask/deep", "no such agent step"),
        ("", "no such agent step"),
        ("call/deep/x", "no such agent step"),
    ] {
        let error = refused(&[(named, PromptName::System, "x")]);
        assert!(error.to_string().contains(words), "{named}: {error}");
        assert_eq!(error.0[0].prompt, None);
    }
}

#[test]
fn two_texts_for_one_prompt_are_refused_and_the_same_twice_is_not() {
    let twice = |second| {
        [
            ("ask", PromptName::System, "x"),
            ("again", PromptName::System, second),
        ]
    };
    assert!(edited(&twice("x")).is_some());
    let error = refused(&twice("y"));
    assert!(error.to_string().contains("another text"), "{error}");
}

#[test]
fn as_many_faults_as_there_are_prompts_are_listed_up_to_a_bound() {
    let names: Vec<String> = (0..MAX_FAULTS + 5).map(|n| format!("none-{n}")).collect();
    let many: Vec<_> = names
        .iter()
        .map(|n| (n.as_str(), PromptName::System, "x"))
        .collect();
    let error = refused(&many);
    assert_eq!(error.violations().len(), MAX_FAULTS);
    assert!(error.to_string().ends_with("(and 49 more)"), "{error}");
}

#[test]
fn the_steps_of_agents_are_found_in_children_too_and_not_without_end() {
    let steps = agent_steps(&definition().plan);
    assert_eq!(steps["asks"], ["ask", "again"]);
    assert_eq!(steps["reflects"], ["call/deep"]);
    // A definition that was tampered with may call itself.
    let mut plan = definition().plan;
    let main = Arc::clone(&plan.workflows["main"]);
    plan.workflows.insert("inner".to_owned(), main);
    let found = agent_steps(&plan);
    assert!(found.values().map(Vec::len).sum::<usize>() <= MAX_PATHS);
    // One may call others twice over many levels.
    let mut workflows = serde_json::Map::new();
    for level in 0..40 {
        let below = format!("w{}", level + 1);
        let steps = json!([
            child("a", json!([]), &below, json!({})),
            child("b", json!([]), &below, json!({})),
            agent("ask", json!([]), "asks", json!({})),
        ]);
        let name = if level == 0 {
            "main".to_owned()
        } else {
            format!("w{level}")
        };
        workflows.insert(name.clone(), workflow(&name, steps));
    }
    workflows.insert("w40".to_owned(), workflow("w40", json!([])));
    let wide = crate::plans_tests::plan(Value::Object(workflows));
    let found = agent_steps(&serde_json::from_value(wide).unwrap());
    assert!(found.values().map(Vec::len).sum::<usize>() <= MAX_PATHS);
}
