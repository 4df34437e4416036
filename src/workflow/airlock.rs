//! The air-lock: every output is checked against its schema (decision R5). Schemas themselves are
//! in [`ktsu_schema`].

use ktsu_projections::life::reserved::is_reserved;
use serde_json::Value;

use super::rules::DecisionRules;
pub use ktsu_schema::{MAX_VIOLATIONS, Schema, SchemaError, SchemaViolation, TOO_EXPENSIVE};

/// The violations of a schema by a value. Under rules that bound it, a value that would take too
/// much is not checked.
pub fn check(schema: &Schema, value: &Value, rules: DecisionRules) -> Vec<SchemaViolation> {
    check_where(schema, value, &|_| false, rules)
}

fn check_where(
    schema: &Schema,
    value: &Value,
    may_lack: &dyn Fn(&str) -> bool,
    rules: DecisionRules,
) -> Vec<SchemaViolation> {
    match (rules.bounds_validation(), rules.bounds_violations()) {
        (true, true) => schema.check_within_bounds(value, may_lack),
        (true, false) => schema.check_unlisted(value, may_lack),
        (false, _) => schema.check_at_any_cost(value, may_lack),
    }
}

/// The code of a failure whose first violation is of this rule.
pub fn code_of(rule: &str, otherwise: &'static str) -> &'static str {
    match rule {
        TOO_EXPENSIVE => TOO_EXPENSIVE,
        _ => otherwise,
    }
}

/// The code of a failure by what a value breaks.
pub fn code_of_first(found: &[SchemaViolation], otherwise: &'static str) -> &'static str {
    let first = found.first();
    first.map_or(otherwise, |first| code_of(&first.rule, otherwise))
}

/// Checks an output without its reserved fields: whatever part of the schema requires one, none is
/// missing (decision R5).
pub fn check_output(schema: &Schema, output: &Value, rules: DecisionRules) -> Vec<SchemaViolation> {
    match rules.reserved_fields_are_never_missing() {
        true => check_where(schema, output, &is_reserved, rules),
        false => check(schema, output, rules),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ktsu_ledger::CanonicalJson;
    use serde_json::json;

    fn schema(value: Value) -> Result<Schema, SchemaError> {
        Schema::compile_output(&CanonicalJson::from_value(&value).unwrap())
    }

    fn first(of: Value, value: Value) -> String {
        let schema = schema(of).unwrap();
        let violations = check_output(&schema, &value, DecisionRules::NEWEST);
        let found = violations
            .first()
            .map(|v| format!("{} {}: {}", v.pointer, v.rule, v.message));
        found.unwrap_or_default()
    }

    #[test]
    fn a_long_value_with_many_alternatives_is_answered_with_one_rule_that_it_breaks() {
        let forms: Vec<Value> = (0..300).map(|n| json!({"const": n})).collect();
        let schema = schema(json!({"items": {"anyOf": forms}})).unwrap();
        let long = |n: u64| json!(vec![n; 400]);
        let found = |value: &Value, rules| check(&schema, value, rules).len();
        let earlier = DecisionRules::from_recorded(6).unwrap();
        assert_eq!(found(&long(301), DecisionRules::NEWEST), 1);
        assert_eq!(found(&long(301), earlier), MAX_VIOLATIONS);
        for rules in [DecisionRules::NEWEST, earlier] {
            assert_eq!(found(&long(299), rules), 0);
            assert_eq!(
                found(&json!([301, 301]), rules),
                2,
                "a short value is answered in full"
            );
        }
    }

    #[test]
    fn what_a_schema_lists_counts_from_rules_7_on() {
        let names: Vec<String> = (0..9_000).map(|n| format!("n{n}")).collect();
        let names = Value::Object(names.into_iter().map(|name| (name, json!({}))).collect());
        let schema = schema(json!({"items": {"properties": names}})).unwrap();
        let rows = json!(vec![json!({}); 3_000]);
        let rules_of = |rules| {
            let found = check(&schema, &rows, rules).into_iter();
            found.map(|one| one.rule).collect::<Vec<_>>()
        };
        let earlier = DecisionRules::from_recorded(6).unwrap();
        assert_eq!(rules_of(DecisionRules::NEWEST), [TOO_EXPENSIVE]);
        assert_eq!(rules_of(earlier), [""; 0]);
    }

    #[test]
    fn violations_are_described_in_our_words() {
        assert_eq!(
            first(json!({"required": ["x"]}), json!({})),
            " required: missing required field: x"
        );
        assert_eq!(
            first(
                json!({"properties": {"a": {"type": "string"}}}),
                json!({"a": 5})
            ),
            "/a type: expected string, got integer"
        );
        assert_eq!(
            first(json!({"type": ["string", "null"]}), json!(1.5)),
            " type: expected null or string, got number"
        );
        assert_eq!(
            first(json!({"enum": ["a", 1]}), json!("b")),
            " enum: expected one of \"a\", 1"
        );
        assert_eq!(
            first(json!({"maximum": 1}), json!(2)),
            " maximum: expected at most 1"
        );
        assert_eq!(
            first(json!({"additionalProperties": false}), json!({"z": 1})),
            " additionalProperties: unexpected field: z"
        );
        assert_eq!(
            first(json!({"pattern": "^a+$"}), json!("b")),
            " pattern: does not match ^a+$"
        );
    }

    #[test]
    fn reserved_names_are_never_required() {
        // R5
        assert_eq!(
            first(json!({"required": ["ktsu_confidence"]}), json!({})),
            ""
        );
    }

    #[test]
    fn reserved_names_are_never_required_by_what_speaks_of_the_whole_output() {
        // R5
        let required = json!({"required": ["ktsu_confidence"]});
        let below = json!({"properties": {"a": required}});
        for whole in [
            json!({"allOf": [required]}),
            json!({"allOf": [{"allOf": [required, {"type": "object"}]}]}),
            json!({"$ref": "#/$defs/d", "$defs": {"d": required}}),
        ] {
            assert_eq!(first(whole.clone(), json!({})), "");
            let rules = DecisionRules::from_recorded(1).unwrap();
            let found = check_output(&schema(whole).unwrap(), &json!({}), rules);
            assert_eq!(found.len(), 1, "rules 1");
        }
        // Within a field it is a name like any other.
        let words = "/a required: missing required field: ktsu_confidence";
        assert_eq!(first(json!({"allOf": [below]}), json!({"a": {}})), words);
        let more = json!({"allOf": [{"required": ["ktsu_confidence", "x"]}]});
        assert_eq!(
            first(more, json!({})),
            " required: missing required field: x"
        );
    }

    #[test]
    fn a_schema_cannot_reach_outside() {
        // K6
        for reference in [
            "http://127.0.0.1:1/x.json",
            "file:///etc/passwd",
            "other.json",
        ] {
            let refused = schema(json!({"$ref": reference}));
            assert!(refused.is_err(), "{reference}");
        }
    }

    #[test]
    fn schemas_that_never_end_are_refused() {
        assert!(schema(json!({"$ref": "#"})).is_err());
        assert!(schema(json!({"allOf": [{"$ref": "#"}]})).is_err());
        let mut definitions = serde_json::Map::new();
        for n in 0..40 {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            definitions.insert(format!("d{n}"), json!({"allOf": [next, next]}));
        }
        definitions.insert("d40".into(), json!({}));
        assert!(schema(json!({"$defs": definitions, "$ref": "#/$defs/d0"})).is_err());
        let tree = schema(json!({"properties": {"next": {"$ref": "#"}, "v": {"type": "integer"}}}));
        let violations = tree.unwrap().check(&json!({"next": {"next": {"v": "x"}}}));
        assert_eq!(violations[0].pointer, "/next/next/v");
    }

    #[test]
    fn patterns_take_linear_time_and_violations_are_capped() {
        let evil = json!({"items": {"pattern": "^(a+)+$"}});
        let text = "a".repeat(50_000) + "b";
        let violations = schema(evil).unwrap().check(&json!(vec![text; 20]));
        assert_eq!(violations.len(), MAX_VIOLATIONS);
        assert!(schema(json!({"pattern": "(?=a)"})).is_err());
        assert!(schema(json!({"type": "strin"})).is_err());
        assert!(schema(json!([])).is_err());
    }
}
