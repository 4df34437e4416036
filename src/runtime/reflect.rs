//! The decision whether to reflect on a draft, for orchestrators that leave this to the runtime.

use serde_json::Value;

use ktsu_contract::runtime::InvokeAgent;

/// A draft that says one of these is final: the step fails by it.
const FATAL: [&str; 4] = [
    "ktsu_injection_attempt",
    "ktsu_untrusted_content",
    "ktsu_low_quality",
    "ktsu_needs_human",
];

/// The member in which a draft says how sure it is.
const CONFIDENCE: &str = "ktsu_confidence";

/// The rule of a task.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ReflectionTrigger {
    /// The agent does not say how sure it is, or nobody says how sure is enough.
    Always,
    /// Only where the draft is less sure than this.
    Below(f64),
}

impl ReflectionTrigger {
    /// The rule of a task that may reflect.
    pub(super) fn of(task: &InvokeAgent) -> Self {
        let properties = task
            .output_schema
            .as_ref()
            .and_then(|schema| schema.get("properties"));
        let declared = properties.is_some_and(|properties| properties.get(CONFIDENCE).is_some());
        match task.confidence_threshold {
            Some(threshold) if declared => Self::Below(threshold),
            Some(_) | None => Self::Always,
        }
    }

    /// Returns `true` if this draft is to be reflected on.
    pub(super) fn fires(&self, draft: &Value) -> bool {
        let harmless = |value: &Value| value.is_null() || *value == Value::Bool(false);
        let fatal = |name: &&str| draft.get(name).is_some_and(|value| !harmless(value));
        if FATAL.iter().any(fatal) {
            return false;
        }
        match self {
            Self::Always => true,
            Self::Below(threshold) => draft
                .get(CONFIDENCE)
                .and_then(Value::as_f64)
                .is_none_or(|confidence| confidence < *threshold),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn trigger(schema: &Value, threshold: Option<f64>) -> ReflectionTrigger {
        let task = json!({
            "run_id": "r", "step_id": "s", "system": "", "user_message": "", "callback_url": "",
            "model": {"group": "g"}, "output_schema": schema, "confidence_threshold": threshold,
        });
        ReflectionTrigger::of(&serde_json::from_value(task).unwrap())
    }

    #[test]
    fn an_agent_that_declares_no_confidence_or_has_no_threshold_always_reflects() {
        let declares = json!({"properties": {"ktsu_confidence": {"type": "number"}}});
        for (schema, threshold) in [
            (&declares, None),
            (&json!({"properties": {}}), Some(0.5)),
            (&Value::Null, Some(0.5)),
        ] {
            assert!(trigger(schema, threshold).fires(&json!({"ktsu_confidence": 1})));
        }
    }

    #[test]
    fn with_a_threshold_only_a_draft_below_it_or_silent_about_it_is_reflected_on() {
        let declares = json!({"properties": {"ktsu_confidence": {"type": "number"}}});
        let trigger = trigger(&declares, Some(0.5));
        for (draft, fires) in [
            (json!({"ktsu_confidence": 0.49}), true),
            (json!({"ktsu_confidence": 0.5}), false),
            (json!({"ktsu_confidence": 1}), false),
            (json!({"ktsu_confidence": "1"}), true),
            (json!({}), true),
        ] {
            assert_eq!(trigger.fires(&draft), fires, "{draft}");
        }
    }

    #[test]
    fn a_fatal_draft_is_final() {
        for name in FATAL {
            for (value, fatal) in [
                (json!(true), true),
                (json!("false"), true),
                (json!(0), true),
                (json!(false), false),
                (Value::Null, false),
            ] {
                let draft = json!({name: value});
                assert_eq!(ReflectionTrigger::Always.fires(&draft), !fatal, "{draft}");
            }
        }
    }
}
