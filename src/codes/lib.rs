//! Every way a request, a step or a run can fail, by a code that never changes.
//!
//! One table gives each code its text, its HTTP status, the exit code of the command line and a
//! title. Each code has a page, `docs/errors/CODE.md`: cause, how to check, fix. HTTP responses carry
//! a problem document (RFC 9457); frames hold only the text of the code.

mod nearest;

use std::fmt;
use std::str::FromStr;

pub use nearest::nearest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The exit code of the command line for a negative result (decision C1).
pub const EXIT_VERDICT: u8 = 1;
/// The exit code of the command line for what could not run (decision C1).
pub const EXIT_COULD_NOT_RUN: u8 = 2;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $exit:ident, $title:literal;)*) => {
        /// A stable error code. Persisted in frames and shown to clients: never renamed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
        }

        impl ErrorCode {
            /// All of them, in the order of the table.
            pub const fn all() -> &'static [Self] {
                &[$(Self::$name,)*]
            }

            /// The stable text, in snake case.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The HTTP status. Codes of failed steps and runs appear inside an envelope with status
            /// 200; for them this is the status a service would give for that effect alone.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// The exit code of the command line.
            pub const fn exit_code(self) -> u8 {
                match self { $(Self::$name => $exit,)* }
            }

            /// A one-line summary, the same for every occurrence.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

error_codes! {
    /// The body does not parse, or contains a key twice.
    InvalidJson = "invalid_json", 400, EXIT_COULD_NOT_RUN, "The body is not valid JSON";
    /// The body is nested too deep.
    TooDeep = "too_deep", 400, EXIT_COULD_NOT_RUN, "The value is nested too deep";
    /// A query parameter is unknown or has an invalid value.
    InvalidQuery = "invalid_query", 400, EXIT_COULD_NOT_RUN, "The query is not valid";
    /// No frame of a run has a type that a pattern names.
    UnknownFrameType = "unknown_frame_type", 400, EXIT_COULD_NOT_RUN, "No frame of a run has such a type";
    /// An encrypted service was called without encryption.
    EncryptedOnly = "encrypted_only", 400, EXIT_COULD_NOT_RUN, "The service is encrypted";
    /// Credentials are missing or wrong.
    Unauthorized = "unauthorized", 401, EXIT_COULD_NOT_RUN, "Credentials are missing or wrong";
    /// The principal is known but lacks the permission.
    Forbidden = "forbidden", 403, EXIT_COULD_NOT_RUN, "The principal may not do this";
    /// A web page of another site made the request.
    ForeignOrigin = "foreign_origin", 403, EXIT_COULD_NOT_RUN, "The request comes from another site";
    /// No resource at this path.
    NotFound = "not_found", 404, EXIT_COULD_NOT_RUN, "There is nothing at this path";
    /// No root workflow of this name.
    WorkflowNotFound = "workflow_not_found", 404, EXIT_COULD_NOT_RUN, "There is no such workflow";
    /// No run of this id.
    RunNotFound = "run_not_found", 404, EXIT_COULD_NOT_RUN, "There is no such run";
    /// The run has no step of this id.
    StepNotFound = "step_not_found", 404, EXIT_COULD_NOT_RUN, "The run has no such step";
    /// The path exists, the method does not.
    MethodNotAllowed = "method_not_allowed", 405, EXIT_COULD_NOT_RUN, "The method is not allowed here";
    /// The response has no format that the client accepts.
    NotAcceptable = "not_acceptable", 406, EXIT_COULD_NOT_RUN, "The client accepts no available format";
    /// The request took too long to arrive.
    Timeout = "timeout", 408, EXIT_COULD_NOT_RUN, "The request took too long to arrive";
    /// The key was used before, for something else.
    IdempotencyConflict = "idempotency_conflict", 409, EXIT_COULD_NOT_RUN, "The idempotency key was used for another request";
    /// Several ids match.
    AmbiguousId = "ambiguous_id", 409, EXIT_COULD_NOT_RUN, "Several ids match";
    /// The run was removed; the stream `store` records when and why.
    RunRemoved = "run_removed", 410, EXIT_COULD_NOT_RUN, "The run was removed from the ledger";
    /// The body is over the limit.
    BodyTooLarge = "body_too_large", 413, EXIT_COULD_NOT_RUN, "The body is too large";
    /// The run has new frames since the client last read it.
    StaleRevision = "stale_revision", 409, EXIT_COULD_NOT_RUN, "The run has moved on";
    /// The run is still active, or would keep a failed step.
    NotResumable = "not_resumable", 409, EXIT_COULD_NOT_RUN, "The run cannot be resumed like this";
    /// The command would change nothing: the run has ended or already has the requested state.
    InvalidRunState = "invalid_run_state", 409, EXIT_COULD_NOT_RUN, "The run's state does not allow this";
    /// Its definition loads no worlds.
    NoWorld = "no_world", 409, EXIT_COULD_NOT_RUN, "The run loads no worlds";
    /// The budget of the run's worlds has no room left.
    BudgetExhausted = "budget_exhausted", 409, EXIT_VERDICT, "The budget of the world is used up";
    /// A posted event does not fit the worlds of the run.
    PostRefused = "post_refused", 422, EXIT_COULD_NOT_RUN, "The post does not fit the world";
    /// Only what is complete has an output.
    StepNotComplete = "step_not_complete", 409, EXIT_COULD_NOT_RUN, "The step is not complete";
    /// No subscription of this id, or it was removed.
    SubscriptionNotFound = "subscription_not_found", 404, EXIT_COULD_NOT_RUN, "There is no such subscription";
    /// The environment file declares it, so it is changed there.
    SubscriptionDeclared = "subscription_declared", 409, EXIT_COULD_NOT_RUN, "The environment file declares this subscription";
    /// Its address or its secret cannot be used, or there are too many.
    SubscriptionRefused = "subscription_refused", 422, EXIT_COULD_NOT_RUN, "The subscription cannot be accepted";
    /// Neither approved nor rejected.
    UnknownDecision = "unknown_decision", 400, EXIT_COULD_NOT_RUN, "The decision is unknown";
    /// The step has requested no approval.
    ApprovalNotFound = "approval_not_found", 404, EXIT_COULD_NOT_RUN, "There is no such approval";
    /// Each approval is decided once, and this one was.
    ApprovalDecided = "approval_already_decided", 409, EXIT_COULD_NOT_RUN, "The approval was already decided";
    /// The decision does not fit the request for approval.
    ApprovalRefused = "approval_refused", 409, EXIT_COULD_NOT_RUN, "The decision cannot be accepted";
    /// Nobody decided in time.
    ApprovalExpired = "approval_expired", 409, EXIT_COULD_NOT_RUN, "The time to decide has passed";
    /// The step has asked for no review.
    ReviewNotFound = "review_not_found", 404, EXIT_COULD_NOT_RUN, "There is no such review";
    /// Each review is decided once, and this one was.
    ReviewDecided = "review_already_decided", 409, EXIT_COULD_NOT_RUN, "The review was already decided";
    /// The decision does not fit the review.
    ReviewRefused = "review_refused", 409, EXIT_COULD_NOT_RUN, "The decision cannot be accepted";
    /// There was no decision in time.
    ReviewExpired = "review_expired", 409, EXIT_COULD_NOT_RUN, "The time to decide has passed";
    /// The step waits for no data.
    SuspensionNotFound = "suspension_not_found", 404, EXIT_COULD_NOT_RUN, "The step does not wait for data";
    /// Each suspension is resumed once, and this one is over.
    SuspensionOver = "suspension_over", 409, EXIT_COULD_NOT_RUN, "The suspension is over";
    /// Another suspension of the step is pending.
    SuspensionStale = "suspension_stale", 409, EXIT_COULD_NOT_RUN, "Another suspension is pending";
    /// The data do not fit the schema of the step.
    ResumeDataInvalid = "resume_data_invalid", 422, EXIT_COULD_NOT_RUN, "The data do not fit the schema";
    /// The policy does not let the person who started the run approve.
    ApproverIsProposer = "approver_is_proposer", 403, EXIT_COULD_NOT_RUN, "Another person has to approve";
    /// A member is missing, unknown or of another type.
    InvalidRequest = "invalid_request", 422, EXIT_COULD_NOT_RUN, "The request is not valid";
    /// The value does not pass the air-lock, or the field is reserved.
    OverlayRefused = "overlay_refused", 422, EXIT_COULD_NOT_RUN, "The overlay is not valid";
    /// The answer takes more work than a request over HTTP may cause.
    TraceTooLarge = "trace_too_large", 422, EXIT_COULD_NOT_RUN, "The trace takes too much work for a request";
    /// No such position, or a definition that does not fit.
    ForkRefused = "fork_refused", 422, EXIT_COULD_NOT_RUN, "The run cannot be forked like this";
    /// JSON, but not an object.
    NotAnObject = "not_an_object", 422, EXIT_COULD_NOT_RUN, "The body is not a JSON object";
    /// The params do not fit the workflow's schema.
    InvalidParams = "invalid_params", 422, EXIT_COULD_NOT_RUN, "The params do not fit the workflow's schema";
    /// Checking a value against its schema would take too much.
    SchemaTooExpensive = "schema_too_expensive", 422, EXIT_COULD_NOT_RUN, "The value takes too much to check";
    /// The run has no model calls that could be repeated, or not on this engine.
    NotRecomputable = "not_recomputable", 422, EXIT_COULD_NOT_RUN, "The run cannot be recomputed";
    /// The file of checks has a fault, or holds a secret.
    EvalInvalid = "eval_invalid", 422, EXIT_COULD_NOT_RUN, "The spec is not valid";
    /// A type of check that this version does not make, or not over HTTP.
    CheckNotSupported = "check_not_supported", 422, EXIT_COULD_NOT_RUN, "The check cannot be made here";
    /// There is no such eval.
    EvalNotFound = "eval_not_found", 404, EXIT_COULD_NOT_RUN, "There is no such eval";
    /// The records are damaged, or of a kind that this version does not understand.
    Unreadable = "unreadable", 500, EXIT_COULD_NOT_RUN, "What was recorded cannot be read";
    /// A defect of ktsu.
    Internal = "internal", 500, EXIT_COULD_NOT_RUN, "An internal error occurred";
    /// The workflow has an agent step, and the orchestrator knows no runtime.
    RuntimeUnconfigured = "runtime_unconfigured", 503, EXIT_COULD_NOT_RUN, "No runtime is configured";
    /// The task has moved on: another attempt, an end, or other bytes under a used number.
    StaleReport = "stale_report", 409, EXIT_COULD_NOT_RUN, "The task is not waiting for this report";
    /// A report, a completion or a heartbeat that cannot be read, or does not follow.
    InvalidReport = "invalid_report", 422, EXIT_COULD_NOT_RUN, "The report is not valid";
    /// The run is not active at the moment.
    Unavailable = "unavailable", 503, EXIT_COULD_NOT_RUN, "The run is not available right now";
    /// An agent reported it: its input contains instructions.
    InjectionAttempt = "injection_attempt", 422, EXIT_VERDICT, "An injection attempt was detected";
    /// The agent does not trust its input.
    UntrustedContent = "untrusted_content", 422, EXIT_VERDICT, "Untrusted content was detected";
    /// The agent says its output is not good enough.
    LowQualityOutput = "low_quality_output", 422, EXIT_VERDICT, "The output is of low quality";
    /// The agent asks for human review.
    NeedsHumanReview = "needs_human_review", 422, EXIT_VERDICT, "A person has to review this";
    /// The agent is less sure than the step asks for.
    ConfidenceBelowThreshold = "confidence_below_threshold", 422, EXIT_VERDICT, "The confidence is below the threshold";
    /// The reply was no JSON object, and neither was its repair.
    OutputInvalid = "output_invalid", 422, EXIT_VERDICT, "The agent's output is not a JSON object";
    /// The reflected reply was no JSON object.
    ReflectOutputInvalid = "reflect_output_invalid", 422, EXIT_VERDICT, "The reflected output is not a JSON object";
    /// More items failed than `max_failures` allows.
    MaxFailuresExceeded = "max_failures_exceeded", 422, EXIT_VERDICT, "Too many items failed";
    /// The run has used its budget up.
    BudgetExceeded = "budget_exceeded", 402, EXIT_VERDICT, "The budget is used up";
    /// The run has a budget, but the model has no price.
    BudgetUnpriced = "budget_unpriced", 402, EXIT_VERDICT, "The run has a budget, but the model has no price";
    /// A model asked for a tool that the allowlists do not permit.
    ToolNotPermitted = "tool_not_permitted", 403, EXIT_VERDICT, "The tool may not be called";
    /// A warning: an entry of an allowlist matches no tool that a model was offered.
    ToolNotOffered = "tool_not_offered", 422, EXIT_VERDICT, "An allowlist entry matches no offered tool";
    /// A tool server cannot be reached, or does not speak MCP.
    ToolServerUnreachable = "tool_server_unreachable", 502, EXIT_VERDICT, "The tool server could not be used";
    /// A tool is not the one that was locked.
    ToolDrift = "tool_drift", 409, EXIT_VERDICT, "A tool differs from the locked one";
    /// It is unknown whether a call happened, and it must not be sent again.
    ToolInDoubt = "tool_in_doubt", 409, EXIT_VERDICT, "It is unknown whether a tool call happened";
    /// A person rejected a call.
    ApprovalRejected = "approval_rejected", 403, EXIT_VERDICT, "A person rejected the tool call";
    /// Nobody decided on a call in time.
    ApprovalTimedOut = "approval_timed_out", 504, EXIT_VERDICT, "The tool call was not decided in time";
    /// A person rejected the outcome of a step.
    ReviewRejected = "review_rejected", 403, EXIT_VERDICT, "The outcome was rejected";
    /// There was no decision on the outcome of a step in time.
    ReviewTimedOut = "review_timed_out", 504, EXIT_VERDICT, "The outcome was not reviewed in time";
    /// A suspended step got no data in time.
    SuspendTimedOut = "suspend_timed_out", 504, EXIT_VERDICT, "The data did not come in time";
    /// The task of a recompute asks for data, and a recompute asks no one.
    StepSuspended = "step_suspended", 422, EXIT_VERDICT, "The step waits for data";
    /// The orchestrator accepts only final results of tasks, so no approval can be requested.
    ApprovalUnsupported = "approval_unsupported", 501, EXIT_VERDICT, "Approvals are not supported here";
    /// No runtime works on the step any more.
    HeartbeatTimeout = "heartbeat_timeout", 504, EXIT_VERDICT, "The runtime is gone";
    /// The runtime did not accept the task.
    RuntimeRefused = "runtime_refused", 502, EXIT_VERDICT, "The runtime refused the task";
    /// A run names what only the process that created it knew.
    ReferenceGone = "reference_gone", 409, EXIT_VERDICT, "A reference of the run means nothing any more";
    /// The orchestrator did not accept a report.
    ReportRefused = "report_refused", 502, EXIT_VERDICT, "A report of the runtime was refused";
    /// The events or commands of an outcome are not what they may be.
    OutcomeInvalid = "outcome_invalid", 422, EXIT_VERDICT, "The events or commands of the outcome are not valid";
    /// An agent commands what its file does not declare.
    CommandNotPermitted = "command_not_permitted", 422, EXIT_VERDICT, "The agent may not command this";
    /// A workflow that an outcome invoked failed.
    InvokeFailed = "invoke_failed", 422, EXIT_VERDICT, "An invoked workflow failed";
    /// An outcome has commands that nothing executes.
    CommandNotSupported = "command_not_supported", 422, EXIT_VERDICT, "The command is not supported";
    /// A prompt would have contained a secret.
    SecretInPrompt = "secret_in_prompt", 422, EXIT_VERDICT, "A prompt may not contain a secret";
    /// The gateway has no model group of this name.
    UnknownGroup = "unknown_group", 400, EXIT_VERDICT, "There is no such model group";
    /// A provider refused a call, or did not answer.
    ProviderError = "provider_error", 502, EXIT_VERDICT, "The provider failed";
    /// No model of a group answered, or the rate limit of a provider was exceeded for too long.
    NoModelsAvailable = "no_models_available", 503, EXIT_VERDICT, "No model of the group is available";
    /// An agent used all of its turns.
    MaxTurnsExceeded = "max_turns_exceeded", 422, EXIT_VERDICT, "The agent used all of its turns";
    /// An agent failed and gave no code.
    AgentFailed = "agent_failed", 502, EXIT_VERDICT, "The agent failed";
    /// The ledger stopped after an error of the disk.
    LedgerStopped = "ledger_stopped", 503, EXIT_COULD_NOT_RUN, "The ledger has stopped";
    /// More is in progress than the limits allow.
    Overloaded = "overloaded", 503, EXIT_COULD_NOT_RUN, "Too much is in progress";
    /// The engine finishes the calls in flight and starts nothing new.
    Draining = "draining", 503, EXIT_COULD_NOT_RUN, "The engine is about to stop";
    /// A principal, or all of them, have as many streams of events open as the connections allow.
    TooManyStreams = "too_many_streams", 429, EXIT_COULD_NOT_RUN, "Too many streams of events are open";
    /// Not enough disk space for new runs.
    DiskFull = "disk_full", 507, EXIT_COULD_NOT_RUN, "The disk is full";
    /// A step's output, or the run's, does not fit its schema.
    SchemaViolation = "schema_violation", 422, EXIT_VERDICT, "The output does not fit its schema";
    /// A transform met a value it cannot work on.
    TransformFailed = "transform_failed", 422, EXIT_VERDICT, "The transform failed";
    /// An expression failed on the values it met.
    ExpressionFailed = "expression_failed", 422, EXIT_VERDICT, "The expression failed";
    /// The receiver answered, but not with a 2xx status.
    WebhookStatus = "webhook_status", 502, EXIT_VERDICT, "The receiver refused the webhook";
    /// The receiver did not answer in time.
    WebhookTimeout = "webhook_timeout", 504, EXIT_VERDICT, "The receiver did not answer in time";
    /// No connection, or a broken one.
    WebhookUnreachable = "webhook_unreachable", 502, EXIT_VERDICT, "The receiver could not be reached";
    /// ktsu does not connect to this address.
    WebhookRefused = "webhook_refused", 403, EXIT_VERDICT, "The address is not allowed";
    /// The signing key of the webhook is empty.
    WebhookUnsigned = "webhook_unsigned", 500, EXIT_VERDICT, "The webhook has no signing key";
    /// Stopped because something else ended the run.
    Stopped = "stopped", 409, EXIT_VERDICT, "The step was stopped";
    /// The run took longer than its policy allows.
    RunTimeout = "run_timeout", 504, EXIT_VERDICT, "The run took too long";
    /// The run ended before this step began.
    RunFailed = "run_failed", 500, EXIT_VERDICT, "The run failed";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not the code of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an error code")]
pub struct ParseErrorCodeError;

impl FromStr for ErrorCode {
    type Err = ParseErrorCodeError;

    fn from_str(text: &str) -> Result<Self, ParseErrorCodeError> {
        let mut codes = Self::all().iter().copied();
        codes
            .find(|code| code.as_str() == text)
            .ok_or(ParseErrorCodeError)
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_has_a_page_that_names_it() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        for code in ErrorCode::all() {
            let page = folder.join(format!("{code}.md"));
            let text = std::fs::read_to_string(&page).unwrap_or_default();
            assert!(
                text.starts_with(&format!("# {code}\n")),
                "{}",
                page.display()
            );
            let lines = text.lines().count();
            assert!((5..=20).contains(&lines), "{code}: {lines} lines");
        }
    }

    #[test]
    fn codes_are_distinct_snake_case_and_read_back() {
        let mut seen = BTreeSet::new();
        for code in ErrorCode::all() {
            let text = code.as_str();
            assert!(seen.insert(text), "{text} twice");
            assert!(
                text.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            );
            assert_eq!(text.parse(), Ok(*code));
            assert!((400..600).contains(&code.status()));
        }
        assert_eq!(
            "child_failed".parse::<ErrorCode>(),
            Err(ParseErrorCodeError)
        );
    }
}
