use serde_json::{Value, json};

use super::*;
use crate::{Schema, TOO_EXPENSIVE};

fn effort(schema: &Value) -> Effort {
    let single = |schema: &Value| jsonschema::validator_for(schema).ok();
    Effort::of(schema, &single)
}

/// A value nested so deeply under one name.
fn nested(depth: usize, name: &str) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!({ name: inner }))
}

/// A recursion that comes to itself under `a` by two ways.
fn doubling() -> Value {
    let branch = json!({"required": ["a"], "properties": {"a": {"$ref": "#/$defs/n"}}});
    json!({"$defs": {"n": {"anyOf": [branch, branch, {"type": "string"}]}},
        "properties": {"x": {"$ref": "#/$defs/n"}}})
}

#[test]
fn a_recursion_with_two_ways_to_one_place_is_refused_before_it_is_checked() {
    let schema = Schema::of_value(&doubling()).unwrap();
    for depth in [20, 40, 60] {
        let found = schema.check(&json!({"x": nested(depth, "a")}));
        let rules: Vec<&str> = found.iter().map(|one| one.rule.as_str()).collect();
        assert_eq!(rules, [TOO_EXPENSIVE], "{depth}");
        assert!(found[0].message.contains("pairs"), "{}", found[0].message);
    }
    assert_eq!(schema.check(&json!({"x": nested(5, "a")})), []);
    assert_eq!(
        schema.check(&json!({"x": {"a": {"b": 1}}}))[0].rule,
        "anyOf"
    );
    assert_eq!(schema.check(&json!({"x": "text"})), []);
}

fn ways(schema: &Value) -> Vec<(String, [String; 2])> {
    let found = crate::recursions_with_two_ways(schema).into_iter();
    found.map(|one| (one.definition, one.ways)).collect()
}

#[test]
fn both_ways_of_a_recursion_are_named() {
    let of = |definition: &str, ways: [&str; 2]| (definition.to_owned(), ways.map(str::to_owned));
    let both = [
        "/$defs/n/anyOf/0/properties/a",
        "/$defs/n/anyOf/1/properties/a",
    ];
    assert_eq!(ways(&doubling()), [of("/$defs/n", both)]);
    // One field of a union by its name, in another by a pattern.
    let union = json!({"$anchor": "e", "oneOf": [
        {"properties": {"kind": {"const": "not"}, "of": {"$ref": "#e"}}},
        {"properties": {"kind": {"const": "and"}}, "patternProperties": {"^o": {"$ref": "#"}}},
        {"properties": {"other": {"$ref": "#"}}}]});
    let both = ["/oneOf/0/properties/of", "/oneOf/1/patternProperties/^o"];
    assert_eq!(ways(&union), [of("", both)]);
    // Twice at the same place, before the value is gone down.
    let twice = json!({"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
    let both = ["/properties/a/allOf/0", "/properties/a/allOf/1"];
    assert_eq!(ways(&twice), [of("", both)]);
    // Two ways of two levels.
    let deep = json!({"anyOf": [
        {"properties": {"a": {"properties": {"b": {"$ref": "#"}}}}},
        {"properties": {"a": {"additionalProperties": {"$ref": "#"}}}}]});
    let both = ["/anyOf/0/properties/a", "/anyOf/1/properties/a"];
    assert_eq!(ways(&deep), [of("", both)]);
}

#[test]
fn a_recursion_with_one_way_to_each_place_is_none() {
    for schema in [
        json!({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}),
        json!({"type": "object", "properties": {"children": {"items": {"$ref": "#"}}}}),
        json!({"anyOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"b": {"$ref": "#"}}}]}),
        json!({"properties": {"a": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}}),
        json!({"prefixItems": [{"$ref": "#"}], "items": {"$ref": "#"}}),
        // Twice, but not below itself.
        json!({"$defs": {"d": {"type": "string"}},
            "allOf": [{"properties": {"a": {"$ref": "#/$defs/d"}}},
                {"properties": {"a": {"$ref": "#/$defs/d"}}}]}),
    ] {
        assert_eq!(ways(&schema), [], "{schema}");
    }
}

#[test]
fn visits_and_pairs_are_counted_as_a_validator_without_memory_makes_them() {
    let counted = |schema: Value, value: Value| {
        let count = effort(&schema).count(&value);
        (count.visits, count.pairs)
    };
    let list = json!({"items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}});
    // The document; of each item the item's schema and both branches.
    assert_eq!(counted(list.clone(), json!([1, "a"])), (7, 7));
    assert_eq!(counted(list, json!("text")), (1, 1));
    // The document, `a` and the reference in it at each level, from one to the number.
    let chain = json!({"properties": {"a": {"$ref": "#"}}});
    assert_eq!(counted(chain, nested(3, "a")), (7, 7));
    let twice = json!({"allOf": [{"properties": {"a": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#"}}}]});
    // Per level: 3 of the document, and below it 2 references, which are the document twice.
    assert_eq!(counted(twice.clone(), nested(1, "a")), (3 + 2 + 6, 8));
    assert_eq!(counted(twice, nested(2, "a")), (3 + 2 + 6 + 4 + 12, 13));
    // Every applicator.
    let all = json!({
        "not": {}, "if": {}, "then": {}, "else": {}, "allOf": [{}], "anyOf": [{}], "oneOf": [{}],
        "dependentSchemas": {"a": {}, "z": {}}, "properties": {"a": {}, "y": {}},
        "patternProperties": {"^b": {}, "^y": {}}, "additionalProperties": {},
        "unevaluatedProperties": {}, "propertyNames": {}, "prefixItems": [{}], "items": {},
        "contains": {}, "unevaluatedItems": {}});
    // Itself, 7 beside it, one for its field `a`; below it a, b, and twice c; three names.
    assert_eq!(
        counted(all.clone(), json!({"a": 1, "b": 1, "c": 1})),
        (1 + 7 + 1 + 4 + 3, 16)
    );
    // Three for each of two items.
    assert_eq!(counted(all, json!([1, 2])), (1 + 7 + 6, 14));
}

#[test]
fn a_reference_is_followed_however_it_is_written() {
    let text = json!({"properties": {"a": {"$ref": "#t"}}, "$defs": {"t": {"$anchor": "t"}}});
    let identified = json!({"$id": "https://x.test/root", "properties": {"a": {"$ref": "item"}},
        "$defs": {"i": {"$id": "item", "anyOf": [{}]}}});
    let escaped = json!({"properties": {"a": {"$ref": "#/$defs/a~1b%25"}}, "$defs": {"a/b%": {}}});
    let dynamic = json!({"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}});
    let recursive = json!({"$schema": "https://json-schema.org/draft/2019-09/schema",
        "properties": {"a": {"$recursiveRef": "#"}}});
    for (schema, visits) in [
        (text, 3),
        (identified, 4),
        (escaped, 3),
        (dynamic, 3),
        (recursive, 3),
    ] {
        assert_eq!(
            effort(&schema).count(&json!({"a": 1})).visits,
            visits,
            "{schema}"
        );
    }
    // Before the draft of 2019-09 nothing counts beside a reference.
    let old = json!({"$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"t": {}}, "properties": {"a": {"$ref": "#/definitions/t", "anyOf": [{}]}}});
    assert_eq!(effort(&old).count(&json!({"a": 1})).visits, 3);
}

#[test]
fn a_schema_that_comes_to_itself_at_one_place_is_never_held_against_it() {
    let schema = json!({"$defs": {"a": {"$anchor": "a", "allOf": [{"$ref": "#a"}]}},
        "properties": {"x": {"$ref": "#a"}}});
    let schema = Schema::of_value(&schema).unwrap();
    assert_eq!(schema.check(&json!({"y": 1})), []);
    assert_eq!(schema.check(&json!({"x": 1}))[0].rule, TOO_EXPENSIVE);
}

#[test]
fn a_large_plain_document_is_checked_without_a_walk() {
    let schema = json!({"type": "array", "uniqueItems": true, "items": {"anyOf": [
        {"type": "integer"}, {"type": "string", "pattern": "^[a-z]{1,64}$"}]}});
    let list: Vec<u32> = (0..150_000).collect();
    let value = json!(list);
    assert!(effort(&schema).is_plain_for(&value, Measure::Listed));
    assert_eq!(Schema::of_value(&schema).unwrap().check(&value), []);
    // Of a recursion as well, each place of a long list is visited a few times.
    let tree = json!({"anyOf": [{"type": "integer"}, {"items": {"$ref": "#"}}]});
    assert!(!effort(&tree).is_plain_for(&value, Measure::Listed));
    assert_eq!(Schema::of_value(&tree).unwrap().check(&value), []);
}

/// Names that differ.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("name{at}")).collect()
}

/// An object with the same under each name.
fn each(count: usize, value: &Value) -> Value {
    names(count)
        .into_iter()
        .map(|name| (name, value.clone()))
        .collect()
}

#[test]
fn long_values_are_refused_by_schemas_that_list_much() {
    let objects = json!(vec![json!({}); 30_000]);
    let texts = json!(vec!["x"; 30_000]);
    let lists = json!(vec![json!([1]); 300]);
    let others: Value = json!(names(700));
    for (schema, value) in [
        (
            json!({"items": {"properties": each(700, &json!({}))}}),
            &objects,
        ),
        (json!({"items": {"required": names(700)}}), &objects),
        (
            json!({"items": {"dependentRequired": {"a": others}}}),
            &objects,
        ),
        (json!({"items": {"dependencies": {"a": others}}}), &objects),
        (
            json!({"items": {"dependentSchemas": each(700, &json!({}))}}),
            &objects,
        ),
        (json!({"items": {"enum": names(700)}}), &texts),
        (json!({"items": {"enum": [vec![0; 60_000]]}}), &lists),
        (json!({"items": {"anyOf": vec![json!({}); 700]}}), &texts),
        (
            json!({"patternProperties": {"^a1": {}, "^name[0-9]{3}$": {}, "^b": {}, "^c": {},
                "^d": {}, "^e": {}, "^f[a-z]{70}": {}}}),
            &each(30_000, &json!(1)),
        ),
    ] {
        let schema = Schema::of_value(&schema).unwrap();
        let found = schema.check(value);
        assert_eq!(found.len(), 1, "{schema:?}");
        assert_eq!(found[0].rule, TOO_EXPENSIVE, "{found:?}");
        // As it was before this counted.
        let unlisted = schema.refusal(value, Measure::Unlisted);
        assert_eq!(unlisted, None);
        let few = match value {
            Value::Array(items) => json!(items[..20]),
            _ => json!({"name123": 1}),
        };
        assert!(schema.too_expensive(&few).is_none(), "{few}");
    }
}

#[test]
fn what_a_schema_lists_counts_for_whether_a_check_takes_long() {
    let schema = Schema::of_value(&json!({"items": {"enum": names(700)}})).unwrap();
    assert!(!schema.exceeds(&json!(vec!["x"; 1_000]), 4_000));
    assert!(schema.exceeds(&json!(vec!["x"; 1_500]), 4_000));
    assert!(schema.too_expensive(&json!(vec!["x"; 1_500])).is_none());
}

#[test]
fn a_value_that_may_break_very_many_rules_is_answered_with_one() {
    let wide = json!({"anyOf": [{"const": 0}, {"const": 1}, {"oneOf": [{}, {}]}, {"const": 2}]});
    let wide = Schema::of_value(&json!({"items": wide})).unwrap();
    assert_eq!(wide.check(&json!(vec!["x"; 14_000])).len(), 16);
    assert_eq!(wide.check(&json!(vec!["x"; 15_000])).len(), 1);
    let required = Schema::of_value(&json!({"items": {"required": names(500)}})).unwrap();
    assert_eq!(required.check(&json!(vec![json!({}); 190])).len(), 16);
    assert_eq!(required.check(&json!(vec![json!({}); 210])).len(), 1);
    // What breaks none passes as before.
    assert_eq!(wide.check(&json!(vec![0; 100_000])), []);
    let right = json!({"items": {"type": "integer"}});
    let right = Schema::of_value(&right).unwrap();
    assert_eq!(right.check(&json!(vec![0; 200_000])), []);
}

#[test]
fn a_wide_table_is_checked() {
    let schema = json!({"items": {"properties": each(100, &json!({"type": "integer"})),
        "required": ["name1"], "additionalProperties": false}});
    let rows = json!(vec![each(8, &json!(1)); 10_000]);
    assert_eq!(Schema::of_value(&schema).unwrap().check(&rows), []);
}

#[test]
fn texts_and_lists_are_refused_where_their_pattern_or_comparison_takes_too_much() {
    let rule = |schema: Value, value: Value| {
        let found = Schema::of_value(&schema).unwrap().check(&value);
        found
            .first()
            .map(|one| one.rule.clone())
            .unwrap_or_default()
    };
    let long = "ab".repeat(200_000);
    let many = json!({"pattern": "(a|b)*a(a|b){500}c"});
    assert_eq!(rule(many.clone(), json!(long)), TOO_EXPENSIVE);
    assert_eq!(rule(many, json!("ab".repeat(5_000))), "pattern");
    assert_eq!(rule(json!({"pattern": "^[ab]+$"}), json!(long)), "");
    assert_eq!(
        rule(json!({"pattern": "^[ab]{1,500}$"}), json!(long)),
        "pattern"
    );
    let names = json!({"patternProperties": {"(a|b)*a(a|b){500}c": {}}});
    assert_eq!(rule(names, json!({ long: 1 })), TOO_EXPENSIVE);
    // Compared again by each of many branches.
    let unique = json!({"uniqueItems": true});
    let items: Vec<u32> = (0..50_000).collect();
    assert_eq!(rule(unique.clone(), json!(items)), "");
    let branches = json!({"allOf": vec![unique; 100]});
    assert_eq!(rule(branches.clone(), json!(items)), TOO_EXPENSIVE);
    assert_eq!(rule(branches, json!([1, 1])), "uniqueItems");
}
