use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::infer::{Finding, FindingKind, InferenceBudget, NameTypes, infer, infer_element};
use super::schema::{of_output, of_params, of_schema};
use super::{ValueType, find_mismatch, step, transform};
use crate::expression::Expression;

fn names(steps: &[(&str, ValueType)]) -> NameTypes {
    let steps = steps.iter().cloned();
    NameTypes {
        params: ValueType::open_object(),
        params_judged: false,
        item: ValueType::any(),
        resume_data: ValueType::any(),
        steps: steps.map(|(id, one)| (id.to_owned(), one)).collect(),
    }
}

fn found(source: &str, names: &NameTypes) -> Vec<Finding> {
    infer(
        &Expression::parse(source).unwrap(),
        names,
        &InferenceBudget::of_a_kit(),
    )
    .1
}

fn problems(source: &str, names: &NameTypes) -> Vec<(FindingKind, usize)> {
    let found = found(source, names).into_iter();
    found.map(|one| (one.problem, one.offset)).collect()
}

fn rows() -> NameTypes {
    let read = of_schema(&json!({"type": "object", "additionalProperties": false,
        "required": ["n"], "properties": {
            "n": {"type": "integer"}, "text": {"type": ["string", "null"]},
            "in": {"type": "array", "items": {"type": "integer"}}}}));
    let open = of_schema(&json!({"properties": {"subject": {"type": "string"}}}));
    let mut names = names(&[
        ("fan", step::results(&read)),
        ("read", read),
        ("open", open),
        ("hook", step::webhook().join(&step::suppressed())),
    ]);
    names.params = of_params(Some(&json!({"properties": {"limit": {"default": 3}}})));
    names
}

#[test]
fn a_field_that_no_value_can_have_is_found_at_its_place() {
    let names = rows();
    for (source, offset) in [
        ("step.read.txt", 10),
        ("read.txt || `1`", 5),
        ("fan.result", 4),
        ("step.fan.results[*].txt", 20),
        ("step.fan.results[?ktsu_eror].n", 18),
        ("step.fan.results[?n == `1`].m | [0]", 28),
        ("length(step.fan.results[].m)", 26),
        ("hook.statuscode", 5),
        ("read.{a: n, b: m}", 15),
        ("map(&m, step.fan.results)", 5),
        ("sort_by(fan.results, &txt)[0].n", 22),
        ("max_by(fan.results, &n).txt", 24),
        ("merge(read, {a: `1`}).b", 22),
        ("not_null(read.m, `1`)", 14),
        ("[read, hook][0].m", 16),
        ("{a: read}.a.m", 12),
        ("(read && hook).m", 15),
        ("read.\"t x\"", 5),
        ("values(read)[0].m", 16),
    ] {
        let all = problems(source, &names);
        let at = all.iter().map(|(_, at)| *at).collect::<Vec<_>>();
        assert_eq!(at, [offset], "{source}: {all:?}");
    }
}

#[test]
fn nothing_is_found_where_a_value_may_be() {
    let names = rows();
    for source in [
        "step.fan.results[?skipped].reason",
        "step.fan.results[*].[n, ktsu_error, item_index, skipped, reason]",
        "hook.suppressed || hook.reason || hook.sent || hook.status_code",
        "open.other",
        "open.subjec == 'x' || open.subjection",
        "params.anything[0].at.all",
        "unknown.step.with.fields",
        "read.text == 'a' || read.text != null || null",
        "read.n > `1` && read.n == `1.5`",
        "length(read.in) > `0` && length(not_null(read.text, ''))",
        "sum(read.in) == max(read.in)",
        "to_array(read)[0].n",
        "keys(read)[0] == 'n'",
        "step.fan.results[?n > `1`] | sort_by(@, &n)[*].{n: n, t: text || 'none'}",
        "!(read.n) || !read",
        "item.anything || item_index > `1`",
        "env.NAME == 'x'",
        "read.* | [0]",
        "type(read.text) == 'null'",
    ] {
        let all = found(source, &names);
        let faults = all
            .iter()
            .filter(|one| one.problem != FindingKind::NearlyDeclared);
        assert_eq!(faults.count(), 0, "{source}: {all:?}");
    }
}

#[test]
fn a_value_that_can_never_be_what_is_done_with_it_is_found_once() {
    let names = rows();
    for (source, problem) in [
        ("fan.results.n", FindingKind::NeverFits),
        ("read.n.m", FindingKind::NeverFits),
        ("read.n[0]", FindingKind::NeverFits),
        ("read[*].n", FindingKind::NeverFits),
        ("read.in.*", FindingKind::NeverFits),
        ("read.n == 'x'", FindingKind::NeverFits),
        ("hook.status_code != '200'", FindingKind::NeverFits),
        ("read.in > `1`", FindingKind::NeverFits),
        ("length(read.n) > `1`", FindingKind::NeverFits),
        ("starts_with(read.n, 'x')", FindingKind::NeverFits),
        ("join(', ', read)", FindingKind::NeverFits),
        ("keys(read.in)", FindingKind::NeverFits),
        ("!read.n", FindingKind::NegatedPath),
        ("!params.limit", FindingKind::NegatedPath),
        ("!fan.results[0].n", FindingKind::NegatedPath),
        ("read.m.deeper.still == 'x'", FindingKind::UnknownField),
    ] {
        let all = problems(source, &names);
        assert_eq!(all.len(), 1, "{source}: {all:?}");
        assert_eq!(all[0].0, problem, "{source}");
    }
}

#[test]
fn hints_name_what_was_meant() {
    let names = rows();
    let hint = |source: &str| found(source, &names)[0].hint.clone().unwrap();
    assert_eq!(hint("fan.result"), "did you mean results?");
    assert_eq!(hint("read.txt"), "did you mean text?");
    assert_eq!(hint("fan.results.n"), "did you mean fan.results[*].n?");
    assert_eq!(hint("fan.text"), "did you mean fan.results[*].text?");
    assert_eq!(hint("read.elsewhere"), "it can have in, n, text");
    assert_eq!(hint("!params.limit"), "write !(params.limit)");
    assert_eq!(hint("!params.limit.a"), "write !(params.limit.a)");
    assert_eq!(hint("!!read.in[*].n"), "write !!(read.in[*].n)");
    assert!(hint("read.in[?@ == true]").contains("backticks"));
}

#[test]
fn the_output_of_a_step_is_the_step_whether_or_not_its_schema_is_open() {
    let names = rows();
    for (source, problem, meant) in [
        (
            "step.read.output.text",
            FindingKind::UnknownField,
            "step.read.text",
        ),
        (
            "read.output.text == 'x'",
            FindingKind::UnknownField,
            "read.text",
        ),
        ("step.read.output", FindingKind::UnknownField, "step.read"),
        (
            "step.open.output.deep.er",
            FindingKind::NearlyDeclared,
            "step.open.deep.er",
        ),
        (
            "length(open.output.rows)",
            FindingKind::NearlyDeclared,
            "open.rows",
        ),
    ] {
        let all = found(source, &names);
        assert_eq!(all.len(), 1, "{source}: {all:?}");
        assert_eq!(all[0].problem, problem, "{source}");
        let hint = format!("did you mean {meant}?");
        assert_eq!(all[0].hint.as_deref(), Some(hint.as_str()), "{source}");
    }
    // Where a schema declares the field, it is meant.
    let declared = of_output(&json!({"properties": {"output": {"type": "string"}}}));
    let names = self::names(&[("ask", declared.stripped())]);
    assert_eq!(problems("step.ask.output", &names), []);
    // And only of a step: below, it is a field like others.
    assert_eq!(problems("step.ask.other.output", &names), []);
}

#[test]
fn a_name_close_to_a_declared_one_is_found_where_others_may_be() {
    let names = rows();
    assert_eq!(
        problems("open.subjct", &names),
        [(FindingKind::NearlyDeclared, 5)]
    );
    assert_eq!(
        problems("params.limt", &names),
        [(FindingKind::NearlyDeclared, 7)]
    );
    assert_eq!(problems("open.title || params.max", &names), []);
}

#[test]
fn reserved_fields_are_never_part_of_an_output() {
    for schema in [
        json!({"type": "object"}),
        json!({"properties": {"ktsu_confidence": {}, "a": {}}}),
    ] {
        let names = names(&[("ask", of_output(&schema).stripped())]);
        assert_eq!(problems("ask.ktsu_confidence", &names).len(), 1, "{schema}");
        assert_eq!(problems("ask.a || ask.b", &names), []);
    }
}

#[test]
fn an_element_may_be_compared_with_null_and_not_with_a_bare_true() {
    let element = of_schema(&json!({"type": "object", "additionalProperties": false,
        "properties": {"spam": {"type": ["boolean", "null"]}}}));
    let found = |source: &str| {
        let expression = Expression::parse_element(source).unwrap();
        infer_element(&expression, &element, &InferenceBudget::of_a_kit())
            .1
            .len()
    };
    assert_eq!(found("spam != null && !spam && @"), 0);
    assert_eq!(found("spam == true"), 1);
}

fn fits(schema: Value, value: Value) -> bool {
    find_mismatch(&ValueType::of_value(&value), &of_schema(&schema)).is_none()
}

#[test]
fn a_schema_forbids_what_it_surely_forbids_and_nothing_more() {
    for (schema, value, may) in [
        (json!({"type": "string"}), json!(1), false),
        (json!({"type": ["string", "integer"]}), json!(1), true),
        (json!({"enum": ["a", 1]}), json!([]), false),
        (json!({"const": {"a": 1}}), json!({"b": 1}), false),
        (json!({"required": ["a"]}), json!({}), false),
        (
            json!({"additionalProperties": false}),
            json!({"a": 1}),
            false,
        ),
        (
            json!({"additionalProperties": false, "patternProperties": {"^a": {}}}),
            json!({"a": 1}),
            true,
        ),
        (
            json!({"additionalProperties": {"type": "string"}}),
            json!({"a": 1}),
            false,
        ),
        (
            json!({"allOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["b"]}]}),
            json!({"a": "x"}),
            false,
        ),
        (
            json!({"allOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["a"]}]}),
            json!({"a": 1}),
            false,
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "object"}]}),
            json!({"a": 1}),
            true,
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "array"}]}),
            json!({"a": 1}),
            false,
        ),
        (
            json!({"$defs": {"t": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/t"}}}),
            json!({"a": 1}),
            false,
        ),
        (
            json!({"$defs": {"t": {"$id": "https://x/y", "type": "string"}}, "properties": {"a": {"$ref": "#/$defs/t"}}}),
            json!({"a": 1}),
            true,
        ),
        (
            json!({"properties": {"a": {"$ref": "#"}}}),
            json!({"a": {"a": {"a": 1}}}),
            true,
        ),
        (
            json!({"not": {"type": "object"}, "if": {"type": "object"}, "then": false}),
            json!({"a": 1}),
            true,
        ),
        (json!(true), json!({"a": 1}), true),
    ] {
        assert_eq!(fits(schema.clone(), value.clone()), may, "{schema} {value}");
    }
}

#[test]
fn defaults_of_params_are_there() {
    let schema = json!({"type": "object", "additionalProperties": false,
        "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": "string"}}});
    let params = of_params(Some(&schema));
    let without_null = |name: &str| params.members().is_some_and(|all| all.named[name].always);
    assert!(without_null("a") && !without_null("b"));
}

#[test]
fn operations_keep_what_is_known() {
    let row = |name: &str| ValueType::record([(name.to_owned(), ValueType::number())]);
    let fields = |value: &ValueType| value.field_names().map(str::to_owned).collect::<Vec<_>>();
    let both = transform::start(&[row("a"), row("b")]);
    assert_eq!(fields(&both), ["a", "b"]);
    assert_eq!(
        fields(&transform::start(&[ValueType::string(), row("b")])),
        ["b"]
    );
    assert!(!transform::start(&[]).is_informative());
    let list = ValueType::array(ValueType::array(row("a")).or_null());
    assert_eq!(fields(&transform::flattened(&list).items()), ["a"]);
    assert_eq!(fields(&transform::filtered(&row("a")).items()), ["a"]);
    let merged = transform::merged(&ValueType::array(row("a")), &ValueType::array(row("b")));
    assert_eq!(fields(&merged.items()), ["a", "b"]);
    let merged = transform::merged(&row("a"), &row("b").or_null());
    assert_eq!(fields(&merged), ["a", "b"]);
    assert!(!transform::sorts(&row("a")) && transform::sorts(&ValueType::any()));
}

/// Depth, width and doubling: a type stays small whatever it is made of.
#[test]
fn a_type_has_a_bound_on_its_size_and_depth() {
    let mut deep = ValueType::number();
    let mut doubled = ValueType::number();
    for _ in 0..200_000 {
        deep = ValueType::record([("a", deep)]);
    }
    for _ in 0..200 {
        doubled = ValueType::record([
            ("a", doubled.clone()),
            ("b", doubled.join(&ValueType::null())),
        ]);
        doubled = doubled.join(&ValueType::record([("c", doubled.clone())]));
    }
    assert!(deep.depth <= super::MAX_TYPE_DEPTH && deep.size <= super::MAX_TYPE_SIZE);
    assert!(doubled.size <= super::MAX_TYPE_SIZE);
    let wide = (0..100_000).map(|n| (format!("f{n}"), ValueType::number()));
    assert!(ValueType::record(wide).size <= super::MAX_TYPE_SIZE);
    let schema = (0..300).fold(
        json!({"type": "object"}),
        |inner, _| json!({"properties": {"a": inner}}),
    );
    assert!(of_schema(&schema).depth <= super::MAX_TYPE_DEPTH);
}

/// Whatever a value of the type is, evaluation agrees: what the walk says cannot be there is null.
#[test]
fn what_is_said_to_be_absent_is_null_when_it_is_evaluated() {
    use crate::expression::{Root, from_value, to_value};
    let value = json!({"n": 1, "text": null, "in": [1, 2]});
    let results = json!({"results": [value, {"ktsu_error": "e", "item_index": 1}]});
    let mut values = BTreeMap::new();
    values.insert(Root::Step("read".into()), from_value(&value));
    values.insert(Root::Step("fan".into()), from_value(&results));
    values.insert(Root::Params, from_value(&json!({"limit": 3})));
    let names = rows();
    for source in [
        "step.read.txt",
        "fan.result",
        "read.n.m",
        "read.n[0]",
        "read[*].n",
        "fan.results.n",
        "!params.limit",
        "read.in > `1`",
        "fan.results[0].m",
    ] {
        let expression = Expression::parse(source).unwrap();
        assert_eq!(found(source, &names).len(), 1, "{source}");
        let given = expression.evaluate(&values).map(|value| to_value(&value));
        assert_eq!(given, Ok(Value::Null), "{source}");
    }
}

#[test]
fn what_a_kit_may_cost_has_a_bound_behind_which_nothing_is_found() {
    let names = rows();
    let expression = Expression::parse("step.read.txt || step.read.txt").unwrap();
    let effort = InferenceBudget::of(1);
    let (value, found) = infer(&expression, &names, &effort);
    assert!(effort.is_spent() && value.is_any() && found.is_empty());
    assert_eq!(
        infer(&expression, &names, &InferenceBudget::of_a_kit())
            .1
            .len(),
        2
    );
}
