//! Evaluates the reserved fields of an agent's output: once, in order, before the air-lock (seed
//! 000, invariant 21; decision R1).

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::Verdict;
use ktsu_projections::life::reserved::{
    CONFIDENCE, FATAL, FLAGS, RATIONALE, SKIP_REASON, code_of, fails_the_run, is_confident,
    is_fatal, is_reserved,
};
use serde_json::Value;

/// The result of the reserved fields of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedEvaluation {
    /// Every field that was looked at, in order.
    pub fields: Vec<Field>,
    /// The end of the step, by the first of them that ends it.
    pub end: Option<ReservedEnd>,
    /// Every reserved name of the output, unknown ones too, ascending.
    pub stripped: Vec<String>,
}

/// A field that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// `ktsu_…`.
    pub name: &'static str,
    /// The value that the agent gave; null where a confidence is needed and missing.
    pub value: CanonicalJson,
    /// The verdict on it.
    pub verdict: Verdict,
}

/// The end of a step because of a reserved field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservedEnd {
    /// It is skipped; the agent's words.
    Skip(String),
    /// It fails.
    Fail {
        /// A stable error code.
        code: &'static str,
        /// For people.
        message: &'static str,
    },
}

/// Checks an output. `threshold` is the step's, in millionths.
pub fn evaluate(output: &Value, threshold: Option<u32>) -> ReservedEvaluation {
    let mut judged = ReservedEvaluation {
        fields: Vec::new(),
        end: None,
        stripped: Vec::new(),
    };
    if let Some(members) = output.as_object() {
        let names = members.keys().filter(|name| is_reserved(name));
        judged.stripped = names.cloned().collect();
        judged.stripped.sort();
    }
    for name in FATAL {
        if let Some(value) = output.get(name) {
            let code = code_of(name);
            let verdict = match (is_fatal(value), fails_the_run(code)) {
                (false, _) => Verdict::Pass,
                (true, false) => Verdict::Fail,
                (true, true) => Verdict::FailRun,
            };
            let message = words(name);
            judged.note(
                name,
                value,
                verdict,
                Some(ReservedEnd::Fail { code, message }),
            );
        }
    }
    evaluate_confidence(&mut judged, output.get(CONFIDENCE), threshold);
    if let Some(value) = output.get(SKIP_REASON) {
        let words = value.as_str().filter(|words| !words.is_empty());
        let verdict = words.map_or(Verdict::Pass, |_| Verdict::Skip);
        judged.note(
            SKIP_REASON,
            value,
            verdict,
            words.map(|words| ReservedEnd::Skip(words.to_owned())),
        );
    }
    for name in [FLAGS, RATIONALE] {
        if let Some(value) = output.get(name) {
            judged.note(name, value, Verdict::Noted, None);
        }
    }
    judged
}

/// Without a threshold a confidence is only noted; with one, a missing confidence counts as 0.
fn evaluate_confidence(
    judged: &mut ReservedEvaluation,
    value: Option<&Value>,
    threshold: Option<u32>,
) {
    match (value, threshold) {
        (None, None) => {}
        (Some(value), None) => judged.note(CONFIDENCE, value, Verdict::Noted, None),
        (value, Some(threshold)) => {
            let verdict = match is_confident(value, threshold) {
                true => Verdict::Pass,
                false => Verdict::Fail,
            };
            let end = ReservedEnd::Fail {
                code: "confidence_below_threshold",
                message: "confidence below threshold",
            };
            judged.note(
                CONFIDENCE,
                value.unwrap_or(&Value::Null),
                verdict,
                Some(end),
            );
        }
    }
}

fn words(field: &str) -> &'static str {
    match field {
        "ktsu_injection_attempt" => "injection attempt detected",
        "ktsu_untrusted_content" => "untrusted content detected",
        "ktsu_low_quality" => "low quality output",
        _ => "the agent asks for a person: needs human review",
    }
}

impl ReservedEvaluation {
    fn note(
        &mut self,
        name: &'static str,
        value: &Value,
        verdict: Verdict,
        end: Option<ReservedEnd>,
    ) {
        self.fields.push(Field {
            name,
            value: CanonicalJson::from_value(value).unwrap_or_default(),
            verdict,
        });
        let ends = matches!(verdict, Verdict::Fail | Verdict::FailRun | Verdict::Skip);
        if ends && self.end.is_none() {
            self.end = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(judged: &ReservedEvaluation) -> Vec<&str> {
        judged.fields.iter().map(|field| field.name).collect()
    }

    #[test]
    fn every_field_is_looked_at_in_order_and_the_first_that_ends_the_step_counts() {
        let output = json!({
            "ktsu_rationale": "r", "ktsu_skip_reason": "s", "ktsu_low_quality": true,
            "ktsu_injection_attempt": true, "ktsu_zzz": 1, "a": 1,
        });
        let judged = evaluate(&output, None);
        assert_eq!(
            names(&judged),
            [
                "ktsu_injection_attempt",
                "ktsu_low_quality",
                "ktsu_skip_reason",
                "ktsu_rationale"
            ]
        );
        assert!(matches!(
            judged.end,
            Some(ReservedEnd::Fail {
                code: "injection_attempt",
                ..
            })
        ));
        assert_eq!(judged.stripped.len(), 5);
    }

    #[test]
    fn a_missing_confidence_fails_a_step_with_a_threshold() {
        let judged = evaluate(&json!({"a": 1}), Some(1));
        assert_eq!(names(&judged), ["ktsu_confidence"]);
        assert!(matches!(
            judged.end,
            Some(ReservedEnd::Fail {
                code: "confidence_below_threshold",
                ..
            })
        ));
        assert_eq!(
            evaluate(&json!({"ktsu_confidence": 0.7}), Some(700_000)).end,
            None
        );
    }

    #[test]
    fn an_empty_reason_skips_nothing() {
        for value in [json!(""), json!(1), json!(null)] {
            assert_eq!(
                evaluate(&json!({"ktsu_skip_reason": value}), None).end,
                None
            );
        }
        let judged = evaluate(&json!({"ktsu_skip_reason": "none"}), None);
        assert_eq!(judged.end, Some(ReservedEnd::Skip("none".to_owned())));
    }
}
