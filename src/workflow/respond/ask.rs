//! The check of a reply to a question of a responder: reserved fields, then the schema, as with the
//! output of any agent (seed 000, invariants 9 and 21). A question without a schema asks for text.

use ktsu_ledger::event::Violation;
use serde_json::Value;

use crate::airlock::check_output;
use crate::definition::CompiledAsk;
use crate::failure_text::violations;
use crate::outcome;
use crate::reserved::{self, Field, ReservedEnd};
use crate::rules::DecisionRules;
use ktsu_projections::life::reserved::is_reserved;

/// The verdict on a reply.
#[derive(Debug)]
pub(crate) struct ReplyVerdict {
    /// The reserved fields that are looked at, in order.
    pub(crate) fields: Vec<Field>,
    /// The violations that the air-lock finds; `None` where it does not look.
    pub(crate) errors: Option<Vec<Violation>>,
    /// The end of the question.
    pub(crate) end: ReplyEnd,
}

/// The end of a question.
#[derive(Debug)]
pub(crate) enum ReplyEnd {
    /// With this output, without reserved fields.
    Output(Value),
    /// The model asked that nothing be made of it, and says why.
    Skipped(String),
    /// With an error.
    Failed {
        /// A stable code.
        code: String,
        /// For people.
        message: String,
    },
}

/// Evaluates the outcome of a question.
pub(crate) fn evaluate(ask: &CompiledAsk, outcome: &Value, rules: DecisionRules) -> ReplyVerdict {
    let Some(schema) = &ask.output else {
        let end = match outcome::refusal(outcome, Value::is_string) {
            Some(refused) => ReplyEnd::Failed {
                code: refused.code,
                message: refused.message,
            },
            None => ReplyEnd::Output(outcome.get("output").cloned().unwrap_or_default()),
        };
        return ReplyVerdict {
            fields: Vec::new(),
            errors: None,
            end,
        };
    };
    let output = outcome.get("output").unwrap_or(&Value::Null);
    let judged = output.is_object().then(|| reserved::evaluate(output, None));
    let (fields, end) = judged.map_or((Vec::new(), None), |judged| (judged.fields, judged.end));
    let refused = outcome::refusal(outcome, Value::is_object);
    let mut errors = None;
    let end = match (end, refused) {
        (Some(ReservedEnd::Fail { code, message }), _) => ReplyEnd::Failed {
            code: code.to_owned(),
            message: message.to_owned(),
        },
        (_, Some(refused)) => ReplyEnd::Failed {
            code: refused.code,
            message: refused.message,
        },
        (Some(ReservedEnd::Skip(words)), None) => ReplyEnd::Skipped(words),
        (None, None) => {
            let mut clean = output.clone();
            if let Some(members) = clean.as_object_mut() {
                members.retain(|name, _| !is_reserved(name));
            }
            let found = violations(check_output(schema, &clean, rules));
            let end = match found.first() {
                None => ReplyEnd::Output(clean),
                Some(first) => ReplyEnd::Failed {
                    code: crate::airlock::code_of(&first.rule, "schema_violation").to_owned(),
                    message: ktsu_schema::message_at(&first.message, &first.path),
                },
            };
            errors = Some(found);
            end
        }
    };
    ReplyVerdict {
        fields,
        errors,
        end,
    }
}
