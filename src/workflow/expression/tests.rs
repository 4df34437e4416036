use super::*;
use serde_json::json;

fn names() -> BTreeMap<Root, Rcvar> {
    let value = |value| from_value(&value);
    BTreeMap::from([
        (
            Root::Params,
            value(json!({"n": 9_007_199_254_740_993_i64, "rows": [{"a": 2}, {"a": 1}]})),
        ),
        (
            Root::Step("fetch-news".into()),
            value(json!({"items": [1, 2, 3], "total": 3})),
        ),
        (Root::Env("REGION".into()), value(json!("eu"))),
    ])
}

fn evaluate(source: &str) -> serde_json::Value {
    let expression = Expression::parse(source).unwrap_or_else(|e| panic!("{source}: {e}"));
    let value = to_value(&expression.evaluate(&names()).unwrap());
    let tracked = track(&expression).unwrap();
    assert_eq!(tracked.to_value(), value, "{source}");
    value
}

/// Tracked evaluation, with the value of each name at a place of its own.
fn track(expression: &Expression) -> Result<Tracked, EvaluationError> {
    let places = (0..).zip(names()).map(|(frame, (root, value))| {
        let place = provenance::FramePointer::new(frame, "/x");
        (root, Tracked::recorded(place, value))
    });
    let places: BTreeMap<Root, Tracked> = places.collect();
    expression.track(&places, &mut Tracker::default())
}

/// The sources and the choosers of an expression's value, as `FRAME/PATH`: 0 are the params, 1 is
/// the environment and 2 the step.
fn provenance_of(source: &str) -> [Vec<String>; 2] {
    let value = track(&Expression::parse(source).unwrap()).unwrap();
    [value.sources(), value.choosers()].map(|set| {
        let places = set
            .iter()
            .map(|place| format!("{}{}", place.frame, place.path));
        places.collect()
    })
}

#[test]
fn a_tracked_value_knows_its_sources_and_what_chose_it() {
    for (source, sources, choosers) in [
        ("params.rows[0].a", vec!["0/x/rows/0/a"], vec![]),
        ("params.rows[7].a", vec![], vec!["0/x/rows"]),
        ("`1`", vec![], vec![]),
        ("params.gone || env.REGION", vec!["1/x"], vec!["0/x"]),
        (
            "params.n == fetch-news.total",
            vec!["0/x/n", "2/x/total"],
            vec![],
        ),
        (
            "max_by(params.rows, &a)",
            vec!["0/x/rows/0"],
            vec!["0/x/rows/0/a", "0/x/rows/1/a"],
        ),
        (
            "contains(fetch-news.items, `2`)",
            vec!["2/x/items/1"],
            vec!["2/x/items"],
        ),
        ("length(fetch-news.items)", vec!["2/x/items"], vec![]),
        (
            "not_null(params.gone, fetch-news.total)",
            vec!["2/x/total"],
            vec!["0/x"],
        ),
        (
            "params.rows[].a | sort(@) | [0]",
            vec!["0/x/rows/1/a"],
            vec!["0/x/rows", "0/x/rows/0/a", "0/x/rows/1/a"],
        ),
    ] {
        assert_eq!(provenance_of(source), [sources, choosers], "{source}");
    }
}

fn roots(source: &str) -> Vec<Root> {
    Expression::parse(source).unwrap().roots().to_vec()
}

#[test]
fn hyphens_belong_to_identifiers_but_not_to_quoted_text() {
    // T2
    assert_eq!(evaluate("step.fetch-news.total"), json!(3));
    assert_eq!(evaluate("fetch-news.items[-1]"), json!(3));
    assert_eq!(evaluate("'a-b' == `\"a-b\"`"), json!(true));
    assert_eq!(
        evaluate("{a-b: params.n}"),
        json!({"a-b": 9_007_199_254_740_993_i64})
    );
}

#[test]
fn roots_are_the_names_at_the_root_only() {
    // T4
    let step = |id: &str| Root::Step(id.into());
    assert_eq!(roots("step.x.y"), [step("x")]);
    assert_eq!(roots("\"step\".\"x\""), [step("x")]);
    assert_eq!(roots("x[?a == b].c"), [step("x")]);
    assert_eq!(roots("step.x[*].y | [0]"), [step("x")]);
    assert_eq!(roots("map(&a.b, step.x[0].items)"), [step("x")]);
    assert_eq!(roots("step.{a: x, b: y}"), [step("x"), step("y")]);
    assert_eq!(roots("null"), []);
    assert_eq!(
        roots("[params.a, env.X, item, item_index, z || !w]"),
        [
            Root::Params,
            Root::Env("X".into()),
            step("w"),
            step("z"),
            Root::Item,
            Root::ItemIndex
        ]
    );
}

#[test]
fn the_params_an_expression_looks_at_are_known_by_name() {
    for (source, names, whole) in [
        ("params.a.b", vec!["a"], false),
        ("params.\"a b\"[0]", vec!["a b"], false),
        ("params | a", vec!["a"], false),
        (
            "join(', ', params.tags[].name) || params.b",
            vec!["b", "tags"],
            false,
        ),
        ("params.rows[?secret]", vec!["rows"], false),
        ("params", vec![], true),
        ("params.*", vec![], true),
        ("params.[a, b]", vec![], true),
        ("params | keys(@)", vec![], true),
        ("values(params) && params.a", vec!["a"], true),
        ("step.params.secret", vec![], false),
    ] {
        let found = Expression::parse(source).unwrap();
        let found = found.params();
        let told: Vec<&str> = found.names.iter().map(String::as_str).collect();
        assert_eq!((told, found.whole), (names, whole), "{source}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    for (source, offset, part) in [
        ("step", 0, "step id"),
        ("params.x > 1", 11, "unexpected"),
        ("@", 0, "whole"),
        ("env", 0, "variable"),
        ("*", 0, "whole"),
        ("[0]", 0, "index"),
        ("params.a-b && lenght(params)", 14, "unknown function"),
        ("length(params, params)", 0, "1 argument"),
        ("sort_by(params.x, age)", 0, "reference"),
        ("params.x = 'a'", 9, "unexpected"),
        ("'abc", 0, "never closed"),
        ("", 0, "empty"),
        ("params.", 7, "too early"),
        ("params.rows[::0]", 0, "step 0"),
    ] {
        let error = Expression::parse(source).expect_err(source);
        assert!(error.message.contains(part), "{source}: {error:?}");
        if offset > 0 && part != "unknown function" {
            assert!(error.offset.abs_diff(offset) <= 1, "{source}: {error:?}");
        }
    }
    assert!(Expression::parse(&"(".repeat(65)).is_err());
    assert!(Expression::parse(&"!".repeat(900)).is_err());
    assert!(Expression::parse(&"a".repeat(1001)).is_err());
}

#[test]
fn the_deepest_allowed_expressions_fit_on_a_small_stack() {
    let sources = [
        "!".repeat(190) + "params",
        format!("params{}", "[*]".repeat(190)),
        format!("params{}", ".*".repeat(190)),
        format!("params{}", "[]".repeat(190)),
        format!("params{}", "[?a]".repeat(190)),
        format!("{}params{}", "[".repeat(64), "]".repeat(64)),
        format!("{}params{}", "not_null(".repeat(64), ")".repeat(64)),
        format!("params{}", ".a".repeat(490)),
        format!("params{}", "||a".repeat(330)),
        format!("`{}`", "[".repeat(990)),
    ];
    let run = move || {
        for source in sources {
            if let Ok(expression) = Expression::parse(&source) {
                let _ = expression.evaluate(&names());
            }
        }
    };
    let small = std::thread::Builder::new().stack_size(2 << 20).spawn(run);
    assert!(small.unwrap().join().is_ok());
}

#[test]
fn paths_are_known_as_paths() {
    let path = |source: &str| Expression::parse(source).unwrap().as_path();
    assert_eq!(
        path("step.x.a[2].b"),
        Some((Root::Step("x".into()), "/a/2/b".into()))
    );
    assert_eq!(path("params"), Some((Root::Params, String::new())));
    assert_eq!(path("env.X"), Some((Root::Env("X".into()), String::new())));
    assert_eq!(path("item.\"a/b\""), Some((Root::Item, "/a~1b".into())));
    assert_eq!(path("x[-1]"), None);
    assert_eq!(path("length(x)"), None);
}

#[test]
fn functions_are_exact_and_empty_averages_are_null() {
    assert_eq!(evaluate("avg(`[]`)"), json!(null));
    assert_eq!(evaluate("avg(`[1,2]`)"), json!(1.5));
    assert_eq!(
        evaluate("sum([params.n, `1`])"),
        json!(9_007_199_254_740_994_i64)
    );
    assert_eq!(
        evaluate("abs(`-9007199254740993`)"),
        json!(9_007_199_254_740_993_i64)
    );
    assert_eq!(evaluate("params.n == `9007199254740992`"), json!(false));
    assert_eq!(evaluate("sort_by(params.rows, &a)[0].a"), json!(1));
    assert_eq!(evaluate("max_by(params.rows, &a).a"), json!(2));
    assert_eq!(evaluate("to_number('12')"), json!(12));
    assert_eq!(
        evaluate("to_string(params.rows)"),
        json!("[{\"a\":2},{\"a\":1}]")
    );
    assert_eq!(evaluate("join('-', ['a', 'b'])"), json!("a-b"));
    assert_eq!(evaluate("fetch-news.items[::-1]"), json!([3, 2, 1]));
    assert_eq!(evaluate("fetch-news.items[-2:]"), json!([2, 3]));
    assert_eq!(evaluate("fetch-news.items[?@ > `1`]"), json!([2, 3]));
    assert_eq!(evaluate("null"), json!(null));
    assert_eq!(evaluate("length('äö')"), json!(2));
}

#[test]
fn a_type_mistake_is_an_error_in_our_words() {
    let error = Expression::parse("length(params.n)")
        .unwrap()
        .evaluate(&names())
        .unwrap_err();
    assert_eq!(error.code, "expression_type");
    assert_eq!(
        error.message,
        "length needs a string, an array or an object, got number"
    );
}

#[test]
fn doubling_expressions_end_soon() {
    for (seed, step) in [
        ("[`1`,`1`]", " | [@,@]"),
        ("[`1`,`1`]", " | [@,@][]"),
        ("'aaaa'", " | join('',[@,@])"),
    ] {
        let source = format!("{seed}{}", step.repeat(50));
        let error = Expression::parse(&source)
            .unwrap()
            .evaluate(&())
            .unwrap_err();
        assert!(
            ["expression_cost", "result_size", "result_depth"].contains(&error.code),
            "{error:?}"
        );
    }
    let equal = format!("[`1`,`1`]{} | @ == to_array(@)", " | [@,@]".repeat(50));
    assert!(Expression::parse(&equal).unwrap().evaluate(&()).is_ok());
}

#[test]
fn truth_is_the_languages() {
    // T3
    for (value, expected) in [
        (json!(0), true),
        (json!(""), false),
        (json!([]), false),
        (json!({}), false),
        (json!(null), false),
        (json!(false), false),
        (json!(" "), true),
    ] {
        assert_eq!(truthy(&from_value(&value)), expected, "{value}");
    }
}

proptest::proptest! {
    #![proptest_config(ktsu_campaign::config(256))]

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,60}") {
        if let Ok(expression) = Expression::parse(&text) {
            let _ = expression.evaluate(&names());
        }
        let mut tracker = Tracker::default();
        let mut evaluator = Evaluator::new(&mut tracker);
        let _ = Expression::parse_element(&text).map(|e| e.evaluate_on(&null(), &mut evaluator).is_ok());
    }

    #[test]
    fn no_plausible_text_makes_it_panic_or_lose_its_value_when_tracked(parts in proptest::collection::vec(
        proptest::sample::select(vec!["params", "step", ".", "[", "]", "(", ")", "&", "|", "'a-b'", "`1`",
            "x-y", "sort_by", "length", "[?", "*", ",", "@", "!", "==", "-1", "{", "}", ":", "\"", "\\", "é"]), 0..20)) {
        let text = parts.concat();
        if let Ok(expression) = Expression::parse(&text) {
            let value = expression.evaluate(&names());
            let tracked = track(&expression).map(|tracked| tracked.value().clone());
            proptest::prop_assert_eq!(tracked, value, "{}", text);
        }
    }

    #[test]
    fn measuring_agrees_with_writing(text in ".{0,40}", n in proptest::num::i64::ANY, f in -1e9f64..1e9) {
        let value = json!({text.clone(): [n, f, true, null, text]});
        proptest::prop_assert_eq!(value::measure(&from_value(&value)).unwrap(), value.to_string().len());
    }
}

#[test]
fn brackets_are_nested_to_a_bound_and_no_deeper() {
    let nested = |depth: usize| format!("{}params.a{}", "(".repeat(depth), ")".repeat(depth));
    Expression::parse(&nested(MAX_NESTING)).unwrap();
    let error = Expression::parse(&nested(MAX_NESTING + 1)).unwrap_err();
    assert_eq!(error.offset, MAX_NESTING, "{error:?}");
}
