//! Reserved output fields: the meaning of each `ktsu_…` field (seed 000, invariant 21; decisions
//! R1, R2).

use serde_json::Value;

/// The fields that end a step or a run, in the order they are looked at.
pub const FATAL: [&str; 4] = [
    "ktsu_injection_attempt",
    "ktsu_untrusted_content",
    "ktsu_low_quality",
    "ktsu_needs_human",
];

/// The agent's confidence, from 0 to 1.
pub const CONFIDENCE: &str = "ktsu_confidence";

/// The reason why the agent wants its step skipped.
pub const SKIP_REASON: &str = "ktsu_skip_reason";

/// Short words for whoever looks.
pub const FLAGS: &str = "ktsu_flags";

/// The reason why the agent says what it says.
pub const RATIONALE: &str = "ktsu_rationale";

/// Returns `true` if a name is kept from outputs.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with("ktsu_")
}

/// Returns `true` if the value of a fatal field ends its step: it fails closed on anything but null
/// and `false`.
pub fn is_fatal(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

/// The error code of a fatal field.
pub fn code_of(field: &str) -> &'static str {
    match field {
        "ktsu_injection_attempt" => "injection_attempt",
        "ktsu_untrusted_content" => "untrusted_content",
        "ktsu_low_quality" => "low_quality_output",
        _ => "needs_human_review",
    }
}

/// Returns `true` if a code fails the run even where a fan-out bears failures (decision R4).
pub fn fails_the_run(code: &str) -> bool {
    matches!(code, "injection_attempt" | "needs_human_review")
}

/// Returns `true` if a confidence reaches a threshold in millionths; what is absent, no number, or
/// not between 0 and 1 counts as 0, and what is equal passes.
pub fn is_confident(value: Option<&Value>, threshold_millionths: u32) -> bool {
    let confidence = value.and_then(Value::as_f64);
    let confidence = confidence.filter(|one| (0.0..=1.0).contains(one));
    confidence.unwrap_or(0.0) >= f64::from(threshold_millionths) / 1_000_000.0
}

/// Returns `true` if a draft is looked at once more (`spec` A13): never if one of its fields is
/// fatal; else always, unless the schema declares a confidence that the draft reaches.
pub fn reflects(draft: &Value, declares_confidence: bool, threshold: Option<u32>) -> bool {
    let fatal = FATAL
        .iter()
        .any(|name| draft.get(name).is_some_and(is_fatal));
    if fatal {
        return false;
    }
    match threshold.filter(|_| declares_confidence) {
        Some(threshold) => !is_confident(draft.get(CONFIDENCE), threshold),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_confidence_equal_to_the_threshold_passes() {
        for (value, passes) in [
            (json!(0.69), false),
            (json!(0.7), true),
            (json!(0.71), true),
            (json!(1), true),
            (json!("0.9"), false),
            (json!(5), false),
            (json!(-1), false),
            (json!(null), false),
        ] {
            assert_eq!(is_confident(Some(&value), 700_000), passes, "{value}");
        }
        assert!(!is_confident(None, 1));
    }

    #[test]
    fn fatal_fields_fail_closed() {
        for (value, fatal) in [
            (json!(true), true),
            (json!("no"), true),
            (json!(0), true),
            (json!({}), true),
            (json!(false), false),
            (json!(null), false),
        ] {
            assert_eq!(is_fatal(&value), fatal, "{value}");
        }
    }

    #[test]
    fn a_draft_is_reflected_on_unless_it_is_fatal_or_sure_enough() {
        let sure = json!({"ktsu_confidence": 0.8});
        assert!(reflects(&sure, false, Some(500_000)));
        assert!(reflects(&sure, true, None));
        assert!(!reflects(&sure, true, Some(800_000)));
        assert!(reflects(&sure, true, Some(800_001)));
        assert!(reflects(&json!({}), true, Some(1)));
        assert!(!reflects(&json!({"ktsu_low_quality": true}), false, None));
    }
}
