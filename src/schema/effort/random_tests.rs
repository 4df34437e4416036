//! Random recursive schemas and values: what is checked takes no more than it may, and is judged
//! alike every time.

use serde_json::{Map, Value, json};

use super::*;
use crate::{Schema, TOO_EXPENSIVE};

/// A fixed sequence of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap() % most
    }
}

const NAMES: [&str; 3] = ["a", "b", "c"];

const DEFINITIONS: [&str; 3] = ["#/$defs/x", "#y", "#/$defs/z"];

/// A schema, some of whose subschemas are references back to the definitions.
fn schema(numbers: &mut Numbers, depth: usize, below: bool) -> Value {
    if below && numbers.below(3) == 0 {
        return json!({"$ref": DEFINITIONS[numbers.below(3)]});
    }
    let mut made = Map::new();
    for _ in 0..=numbers.below(3) {
        let name = NAMES[numbers.below(3)];
        let keyword = match depth {
            0 => 9 + numbers.below(7),
            _ => numbers.below(16),
        };
        let mut inner = |below| schema(numbers, depth.saturating_sub(1), below);
        let (keyword, value) = match keyword {
            0 => ("anyOf", json!([inner(below), inner(below), inner(below)])),
            1 => ("allOf", json!([inner(below), inner(below)])),
            2 => ("oneOf", json!([inner(below), inner(below)])),
            3 => ("not", inner(below)),
            4 => ("if", inner(below)),
            5 => ("then", inner(below)),
            6 => ("unevaluatedProperties", inner(true)),
            7 => ("dependentSchemas", json!({ name: inner(below) })),
            8 => ("contains", inner(true)),
            9 => ("properties", json!({ name: inner(true), "a": inner(true) })),
            10 => ("patternProperties", json!({"^[ab]": inner(true)})),
            11 => ("additionalProperties", inner(true)),
            12 => ("items", inner(true)),
            13 => ("required", json!([name])),
            14 => ("uniqueItems", json!(true)),
            _ => ("type", json!(["object", "array", "string"])),
        };
        made.insert(keyword.to_owned(), value);
    }
    Value::Object(made)
}

fn value(numbers: &mut Numbers, depth: usize) -> Value {
    if depth == 0 {
        return json!(1);
    }
    match numbers.below(8) {
        0 => json!("ab".repeat(numbers.below(20))),
        1 | 2 => {
            let one = value(numbers, depth - 1);
            let few = numbers.below(3);
            (0..=few).map(|_| one.clone()).collect()
        }
        // Deep, as that is what costs.
        kind => {
            let deep = value(numbers, depth - 1);
            let mut made = Map::from_iter([(NAMES[numbers.below(3)].to_owned(), deep)]);
            if kind == 3 {
                made.insert("b".to_owned(), value(numbers, depth / 3));
            }
            Value::Object(made)
        }
    }
}

#[test]
fn random_recursive_schemas_check_nothing_that_takes_too_much_and_judge_alike() {
    let full = std::env::var("KTSU_CAMPAIGN").is_ok_and(|size| size == "full");
    let mut numbers = Numbers(37);
    let (mut compiled, mut refused, mut large) = (0, 0, 0);
    let most = if full { 2_000 } else { 200 };
    while compiled < most {
        let mut document = schema(&mut numbers, 2, true);
        document["$defs"] = json!({
            "x": schema(&mut numbers, 3, false), "y": schema(&mut numbers, 3, false),
            "z": schema(&mut numbers, 2, false)});
        document["$defs"]["y"]["$anchor"] = json!("y");
        let Ok(first) = Schema::of_value(&document) else {
            continue;
        };
        let again = Schema::of_value(&document).unwrap();
        let effort = effort_of(&document);
        for depth in [3, 8, 20, 40, 60] {
            compiled += usize::from(depth == 3);
            let value = value(&mut numbers, depth);
            if walk::size(&value).0 > 10_000 {
                continue;
            }
            let count = effort.count(&value);
            let most = MAX_VISITS.max(MAX_VISITS_PER_PAIR * count.pairs);
            let fits = count.visits <= most && count.steps <= MAX_STEPS;
            let found = first.check(&value);
            let is_refused = found.first().is_some_and(|one| one.rule == TOO_EXPENSIVE);
            assert_eq!(is_refused, !fits, "{count:?} {document} {value}");
            assert_eq!(found, again.check(&value), "{document} {value}");
            refused += usize::from(is_refused);
            large += usize::from(!is_refused && count.visits > 200);
        }
    }
    assert!(refused > most / 10, "{refused} refused");
    assert!(large > most / 10, "{large} large ones checked");
}

fn effort_of(schema: &Value) -> Effort {
    let single = |schema: &Value| jsonschema::validator_for(schema).ok();
    Effort::of(schema, &single)
}
