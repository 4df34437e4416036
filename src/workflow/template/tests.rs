use std::collections::BTreeMap;

use jmespath::Rcvar;

use super::*;
use crate::workflow::expression::from_value;
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

fn render(tree: Value) -> Rendered {
    let template = Template::from_value(&tree).unwrap();
    template.render(&names(), &|name| name == "KEY").unwrap()
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
    let path = |pointer: &str| Source::Path {
        root: Root::Params,
        pointer: pointer.into(),
    };
    let computed = Source::Computed {
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
    assert_eq!(rendered.leaves[0].source, Source::Secret);
    let template = Template::text("Bearer {{ env.KEY }}").unwrap();
    let built = template.render(&names(), &|_| false).unwrap();
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
        assert_eq!(text_of(&value), text);
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[{} a-z'\"`.|é]{0,40}") {
        if let Ok(template) = Template::text(&text) {
            let _ = template.render(&names(), &|_| false);
        }
    }

    #[test]
    fn text_without_braces_is_literal(text in "[^{]{0,40}") {
        proptest::prop_assert_eq!(render(json!(text.clone())).value, json!(text));
    }
}
