use std::collections::BTreeMap;

use jmespath::Rcvar;

use super::*;
use crate::expression::from_value;
use serde_json::json;

fn names() -> BTreeMap<Root, Rcvar> {
    BTreeMap::from([
        (
            Root::Params,
            from_value(&json!({"n": 12_345_678, "o": {"k": [1]}, "x": null})),
        ),
        (Root::Env("KEY".into()), from_value(&json!("s3cret"))),
    ])
}

fn render(tree: Value) -> RenderedTemplate {
    let template = Template::from_value(&tree).unwrap();
    template
        .render(&names(), &|name| name == "KEY", DecisionRules::NEWEST)
        .unwrap()
}

#[test]
fn a_tree_is_walked_and_its_leaves_say_where_they_came_from() {
    let rendered = render(json!({
        "plain": "env:X", "n": "{{ params.n }}", "t": ["n={{ params.n }}", 1],
        "gone": "{{ params.y }}", "there": "{{ params.x }}", "a/b": "{{ length(params.o) }}"
    }));
    assert_eq!(
        rendered.value,
        json!({
            "plain": "env:X", "n": 12_345_678, "t": ["n=12345678", 1], "gone": null, "there": null, "a/b": 1
        })
    );
    let path = |pointer: &str| LeafSource::Path {
        root: Root::Params,
        pointer: pointer.into(),
    };
    let computed = LeafSource::Computed {
        roots: vec![Root::Params],
    };
    let leaves: BTreeMap<_, _> = rendered
        .leaves
        .into_iter()
        .map(|leaf| (leaf.at, leaf.source))
        .collect();
    assert_eq!(
        leaves,
        BTreeMap::from([
            ("/n".into(), path("/n")),
            ("/t/0".into(), computed.clone()),
            ("/gone".into(), computed.clone()),
            ("/there".into(), path("/x")),
            ("/a~1b".into(), computed),
        ])
    );
}

#[test]
fn a_secret_leaf_keeps_its_template_text_until_it_is_built() {
    let rendered = render(json!({"auth": "Bearer {{ env.KEY }}"}));
    assert_eq!(rendered.value, json!({"auth": "Bearer {{ env.KEY }}"}));
    assert_eq!(rendered.leaves[0].source, LeafSource::Secret);
    let template = Template::text("Bearer {{ env.KEY }}").unwrap();
    let built = template
        .render(&names(), &|_| false, DecisionRules::NEWEST)
        .unwrap();
    assert_eq!(built.value, json!("Bearer s3cret"));
}

#[test]
fn braces_inside_an_expression_do_not_close_it() {
    assert_eq!(
        render(json!("{{ {a: {b: params.n}} }}")).value,
        json!({"a": {"b": 12_345_678}})
    );
    assert_eq!(render(json!("{{ '}}' }}")).value, json!("}}"));
    assert_eq!(render(json!("{{ '{{' }} x")).value, json!("{{ x"));
}

#[test]
fn broken_templates_say_where() {
    for (source, offset) in [
        ("a {{ }}", 2),
        ("x {{ params.n", 2),
        ("{{ params. }}", 10),
        ("{{}}", 0),
    ] {
        let error = Template::from_value(&json!({"k": [source]})).unwrap_err();
        assert_eq!(
            (error.pointer.as_str(), error.offset),
            ("/k/0", offset),
            "{error:?}"
        );
    }
}

#[test]
fn text_follows_the_text_rule() {
    for (value, text) in [
        (json!(12_345_678), "12345678"),
        (json!(1.5), "1.5"),
        (json!(1e7), "10000000"),
        (json!(true), "true"),
        (json!(null), ""),
        (json!([1, {"a": "b"}]), r#"[1,{"a":"b"}]"#),
        (json!(u64::MAX), "18446744073709551615"),
    ] {
        for rules in [1, 2] {
            let rules = DecisionRules::from_recorded(rules).unwrap();
            assert_eq!(text_of(&value, rules), text);
        }
    }
}

/// What a number is as text, read from JSON: the first form under rules 1, the second since.
#[test]
fn whole_numbers_of_64_bits_are_text_without_exponent_however_they_are_written() {
    for (json, before, text) in [
        ("1e16", "1e+16", "10000000000000000"),
        ("-1e16", "-1e+16", "-10000000000000000"),
        ("1e15", "1000000000000000", "1000000000000000"),
        ("9007199254740993", "9007199254740993", "9007199254740993"),
        (
            "9223372036854775807",
            "9223372036854775807",
            "9223372036854775807",
        ),
        (
            "-9223372036854775808",
            "-9223372036854775808",
            "-9223372036854775808",
        ),
        (
            "-9.223372036854775808e18",
            "-9.223372036854776e+18",
            "-9223372036854775808",
        ),
        (
            "18446744073709551615",
            "18446744073709551615",
            "18446744073709551615",
        ),
        ("1.8e19", "1.8e+19", "18000000000000000000"),
        ("-0", "-0", "0"),
        ("-0.0", "-0", "0"),
        // Beyond 64 bits, and between whole numbers: the shortest form that reads back.
        (
            "18446744073709551616",
            "1.8446744073709552e+19",
            "1.8446744073709552e+19",
        ),
        (
            "-9223372036854775809000",
            "-9.223372036854776e+21",
            "-9.223372036854776e+21",
        ),
        ("1e300", "1e+300", "1e+300"),
        ("0.1", "0.1", "0.1"),
        ("1e-7", "1e-7", "1e-7"),
        (
            "[1e16,-0.0,{\"a\":3.0}]",
            "[1e+16,-0.0,{\"a\":3.0}]",
            "[10000000000000000,0,{\"a\":3}]",
        ),
        ("[1.5,1e300]", "[1.5,1e+300]", "[1.5,1e+300]"),
    ] {
        let value: Value = serde_json::from_str(json).unwrap();
        let first = DecisionRules::from_recorded(1).unwrap();
        assert_eq!(text_of(&value, first), before, "{json} under rules 1");
        assert_eq!(text_of(&value, DecisionRules::NEWEST), text, "{json}");
    }
}

#[test]
fn places_with_expressions_are_known_before_anything_is_rendered() {
    let tree = json!({"a": "{{ params.n }}", "b/c": ["x", "n={{ params.n }}"], "d": {"e": 1}});
    let template = Template::from_value(&tree).unwrap();
    assert_eq!(template.expression_pointers(), ["/a", "/b~1c/1"]);
    assert_eq!(
        Template::text("{{ params.n }}")
            .unwrap()
            .expression_pointers(),
        [""]
    );
}

proptest::proptest! {
    #![proptest_config(ktsu_campaign::config(256))]

    #[test]
    fn no_text_makes_it_panic(text in "[{} a-z'\"`.|é]{0,40}") {
        if let Ok(template) = Template::text(&text) {
            let _ = template.render(&names(), &|_| false, DecisionRules::NEWEST);
        }
    }

    #[test]
    fn text_without_braces_is_literal(text in "[^{]{0,40}") {
        proptest::prop_assert_eq!(render(json!(text.clone())).value, json!(text));
    }
}
