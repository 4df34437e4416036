use std::collections::BTreeSet;

use ktsu_config::shape::json::document;
use ktsu_schema::Schema;

use crate::{CheckKind, EVAL};

use super::support::{faults, parse, spec};

/// One invariant of every type that is described for specs, with all of its fields.
const EVERY_TYPE: &str = include_str!("fixtures/every-type.eval.yaml");
/// A gate, and what is nice to have.
const GATED: &str = include_str!("fixtures/gated.eval.yaml");
/// What was reached, how, and how well.
const STATE: &str = include_str!("fixtures/state.eval.yaml");

#[test]
fn specs_with_every_type_of_check_are_read() {
    let every = spec(EVERY_TYPE);
    let kinds: BTreeSet<&str> = every
        .invariants
        .iter()
        .map(|one| one.check.name())
        .collect();
    assert_eq!(kinds.len(), 11, "{kinds:?}");
    let gated = spec(GATED);
    let shown: Vec<_> = gated
        .invariants
        .iter()
        .map(|one| (one.index, &*one.name, one.weight, one.gate))
        .collect();
    assert_eq!(
        shown,
        [
            (0, "tests_pass", 1.0, true),
            (1, "no_console_log", 0.3, false),
            (2, "small_diff", 0.2, false)
        ]
    );
    assert_eq!(gated.pass_threshold, 0.85);
    assert!(gated.needs_workspace() && gated.runs_programs());
    assert_eq!(
        spec(STATE).needs_suite().map(|one| &*one.name),
        Some("reconciliation_clean")
    );
}

#[test]
fn keys_of_other_commands_and_missing_descriptions_are_warnings() {
    let text = "version: 1\nid: a\nreplica: 1\n";
    assert!(faults(text)[0].2.contains("unknown key"));
    let text =
        "version: 1\nbase: image\ndescription: d\ninvariants:\n  a:\n    check: {type: output}\n";
    let (spec, warnings) = parse(text).unwrap();
    let shown: Vec<_> = warnings
        .iter()
        .map(|one| (one.line, &*one.message))
        .collect();
    assert_eq!(
        shown,
        [
            (2, "base is not used by ktsu check"),
            (6, "the invariant a has no description")
        ]
    );
    assert_eq!(spec.pass_threshold, 1.0);
    assert!(matches!(spec.invariants[0].check, CheckKind::Output(_)));
}

#[test]
fn faults_are_reported_at_their_place() {
    let a = "invariants:\n  a:\n    description: d\n    check: ";
    for (text, line, column, words) in [
        (
            format!("{a}{{type: outptu}}\n"),
            4,
            19,
            "did you mean output?",
        ),
        (
            format!("{a}{{type: zzzzzzzzzz}}\n"),
            4,
            19,
            "known types: output, trace",
        ),
        (
            format!("{a}{{type: output, exp: a}}\n"),
            4,
            27,
            "did you mean expr?",
        ),
        (format!("{a}{{type: output, expr: 'a ='}}\n"), 4, 33, "a ="),
        (
            format!("{a}{{type: output, schema: {{type: objct}}}}\n"),
            4,
            42,
            "",
        ),
        (
            format!("{a}{{type: output, pattern: '('}}\n"),
            4,
            36,
            "regular expression",
        ),
        (
            format!("{a}{{type: trace}}\n"),
            4,
            12,
            "needs one of count, none",
        ),
        (
            format!("{a}{{type: trace, count: {{min: 1}}}}\n"),
            4,
            12,
            "needs \"where\"",
        ),
        (
            format!("{a}{{type: trace, where: {{}}, none: true}}\n"),
            4,
            33,
            "needs one of",
        ),
        (
            format!("{a}{{type: trace, where: {{tool: a}}, none: false}}\n"),
            4,
            50,
            "can only be true",
        ),
        (
            format!("{a}{{type: trace, where: {{tol: a}}, none: true}}\n"),
            4,
            34,
            "did you mean tool?",
        ),
        (
            format!("{a}{{type: trace, where: {{type: tool.caled}}, none: true}}\n"),
            4,
            40,
            "tool.called",
        ),
        (
            format!("{a}{{type: trace, where: {{tool: a}}, none: true, all: b}}\n"),
            4,
            56,
            "more than one of",
        ),
        (
            format!("{a}{{type: trace, where: {{tool: a}}, duration: {{max: 1m}}}}\n"),
            4,
            26,
            "does not go with",
        ),
        (
            format!("{a}{{type: trace, model_calls: {{min: 3, max: 2}}}}\n"),
            4,
            40,
            "above its max",
        ),
        (
            format!("{a}{{type: trace, model_calls: {{}}}}\n"),
            4,
            39,
            "needs one of",
        ),
        (
            format!("{a}{{type: trace, duration: {{max: 5}}}}\n"),
            4,
            42,
            "duration",
        ),
        (
            format!("{a}{{type: file_exists, path: ../a}}\n"),
            4,
            38,
            "stay within it",
        ),
        (
            format!("{a}{{type: file_exists, path: /a}}\n"),
            4,
            38,
            "relative",
        ),
        (
            format!("{a}{{type: file_content, path: a}}\n"),
            4,
            12,
            "needs one of contains",
        ),
        (
            format!("{a}{{type: sql, service: db, query: q}}\n"),
            4,
            12,
            "needs one of equals",
        ),
        (
            format!("{a}{{type: custom, script: s, runs_in: moon}}\n"),
            4,
            47,
            "host or sandbox",
        ),
        (
            format!("{a}{{type: custom, script: ../s.py}}\n"),
            4,
            35,
            "stay within it",
        ),
        (
            format!("{a}{{type: command_exit, command: ' '}}\n"),
            4,
            42,
            "1 to 65536 bytes",
        ),
        (
            format!("{a}{{type: command_exit, command: a, limits: {{time: 2h}}}}\n"),
            4,
            60,
            "from 1ms to 1h",
        ),
        (
            format!("{a}{{type: command_exit, command: a, limits: {{memory_mb: 1}}}}\n"),
            4,
            65,
            "16",
        ),
        (
            format!("{a}{{type: output}}\n    weight: -1\n"),
            5,
            13,
            "between 0 and",
        ),
        (
            format!("{a}{{type: output}}\n    weight: .inf\n"),
            5,
            13,
            "finite",
        ),
        (
            format!("{a}{{type: output}}\n    weight: 0\n"),
            1,
            1,
            "0 in total",
        ),
        (
            format!("{a}{{type: output}}\n    gate: yes\n"),
            5,
            11,
            "true or false",
        ),
        (
            format!("{a}{{type: output}}\n  a: {{check: {{type: output}}}}\n"),
            5,
            3,
            "twice",
        ),
        (
            format!("{a}{{type: output}}\nscoring: {{pass_threshold: 1.1}}\n"),
            5,
            27,
            "between 0 and 1",
        ),
        (
            format!("{a}{{type: output}}\nscoring: {{replica_aggregation: some}}\n"),
            5,
            32,
            "all or any",
        ),
        (
            format!("{a}{{type: output}}\nforbidden: [{{name: a, where: {{tool: b}}}}]\n"),
            5,
            20,
            "taken",
        ),
        (
            "invariants:\n  a b: {check: {type: output}}\n".to_owned(),
            2,
            3,
            "is not a name",
        ),
        ("invariants: {}\n".to_owned(), 1, 1, "no invariants"),
        ("version: 1\n".to_owned(), 1, 1, "no invariants"),
        (
            "forbidden: [{where: {}}]\n".to_owned(),
            1,
            21,
            "needs one of",
        ),
    ] {
        let found = faults(&text);
        let fits = |(l, c, message): &(usize, usize, String)| {
            (*l, *c) == (line, column) && message.contains(words)
        };
        assert!(found.iter().any(fits), "{text}{found:?}");
    }
}

#[test]
fn a_file_is_bounded() {
    let large = format!("# {}\n", "x".repeat(crate::MAX_FILE));
    assert!(faults(&large)[0].2.contains("larger than 1 MiB"));
    let many: String = (0..=crate::MAX_INVARIANTS)
        .map(|at| format!("  n{at}: {{description: d, check: {{type: output}}}}\n"))
        .collect();
    let many = format!("invariants:\n{many}");
    assert!(faults(&many)[0].2.contains("more than 1000 invariants"));
}

#[test]
fn what_is_read_fits_the_schema_for_editors_and_what_is_refused_does_not() {
    let schema = Schema::of_value(&document("evals", &EVAL)).unwrap();
    let fits = |text: &str| {
        let value = ktsu_config::yaml::parse(text).unwrap().to_value();
        schema.check(&value).is_empty()
    };
    for text in [EVERY_TYPE, GATED, STATE] {
        assert!(fits(text), "{text}");
    }
    for text in [
        "version: 1\n",
        "invariants: {a: {check: {type: outptu}}}\n",
        "invariants: {a: {check: {type: trace, where: {tool: a}}}}\n",
        "invariants: {a: {check: {type: output}, weight: -1}}\n",
    ] {
        assert!(!fits(text), "{text}");
    }
}

proptest::proptest! {
    #![proptest_config(ktsu_campaign::config(256))]

    #[test]
    fn no_text_makes_the_reader_panic(text in "(invariants|forbidden|check|type|where|trace|output|[:{}\\[\\], \n'-]|a){0,40}") {
        let _ = parse(&text);
    }
}

#[test]
fn a_file_has_no_more_patterns_than_are_compiled_in_a_moment() {
    let with = |count: usize| {
        let one =
            |at| format!("  n{at}: {{description: d, check: {{type: output, pattern: a}}}}\n");
        let all: String = (0..count).map(one).collect();
        format!("invariants:\n{all}")
    };
    assert_eq!(spec(&with(200)).invariants.len(), 200);
    let found = faults(&with(201));
    assert_eq!((found.len(), found[0].0), (1, 202));
    assert!(found[0].2.contains("more than 200 patterns"), "{found:?}");
}
