//! Frames about agents and their calls, in a few words.

use ktsu_ledger::event::{
    AgentEvent, AgentFinished, DoubtReason, LlmResponse, Purpose, ToolReturned, UnsentReason,
};

/// The content of a frame about an agent in a few words.
pub(super) fn describe_agent(event: &AgentEvent) -> String {
    match event {
        AgentEvent::Request(request) => {
            let purpose = match request.purpose {
                Purpose::Turn => "",
                Purpose::Repair => " to repair the draft",
                Purpose::Reflect => " to reflect",
            };
            format!("asks {}{purpose}", request.group)
        }
        AgentEvent::Response(response) => describe_response(response),
        AgentEvent::Decided(decided) => match decided.draft {
            Some(_) => "has a draft".to_owned(),
            None => "calls tools".to_owned(),
        },
        AgentEvent::ReflectStarted(_) => String::new(),
        AgentEvent::BudgetExhausted(spent) => format!(
            "{} of {} spent",
            dollars(spent.cost_micro_usd),
            dollars(spent.limit_micro_usd)
        ),
        AgentEvent::ToolCalled(called) => {
            let again = if called.again.is_some() {
                ", again"
            } else {
                ""
            };
            format!("{} of {}{again}", called.tool, called.server)
        }
        AgentEvent::ToolReturned(returned) => describe_result(returned),
        AgentEvent::ToolInDoubt(doubt) => match doubt.reason {
            DoubtReason::NoAnswer => "sent, and no answer came".to_owned(),
            DoubtReason::WorkerLost => "its runtime was lost before an answer came".to_owned(),
            DoubtReason::TaskEnded => "its task ended before an answer came".to_owned(),
        },
        AgentEvent::ApprovalRequested(asked) => format!("{} of {}", asked.tool, asked.server),
        AgentEvent::ApprovalDecided(decided) => {
            let word = decided.decision.as_str();
            match &decided.reason {
                Some(why) => format!("{word} by {}: {why}", decided.by.id),
                None => format!("{word} by {}", decided.by.id),
            }
        }
        AgentEvent::ApprovalExpired(_) => "nobody decided in time".to_owned(),
        AgentEvent::Finished(finished) => describe_end(finished),
    }
}

fn describe_result(returned: &ToolReturned) -> String {
    let error = if returned.is_error {
        "an error"
    } else {
        "a result"
    };
    if let Some(at) = &returned.recorded {
        return format!("{error} as recorded: {} of {}", at.tool, at.server);
    }
    match returned.not_sent {
        None => format!("{error} after {} ms", returned.duration_ms),
        Some(why) => {
            let why = match why {
                UnsentReason::UnknownTool => "no server offers it",
                UnsentReason::InvalidArguments => "the arguments do not fit",
                UnsentReason::SecretInArguments => "the arguments hold a secret",
                UnsentReason::Rejected => "rejected",
                UnsentReason::InDoubt => "in doubt, and not sent again",
                UnsentReason::SuppressedInBranch => "suppressed in the branch",
            };
            format!("not sent: {why}")
        }
    }
}

/// The reason, and the error if there is one.
fn describe_end(finished: &AgentFinished) -> String {
    let reason = finished.reason.as_str();
    let error = finished.outcome.pointer("/error").unwrap_or_default();
    let text = |name: &str| error[name].as_str().unwrap_or_default();
    match (text("code"), text("message")) {
        ("", _) => reason.to_owned(),
        (code, "") => format!("{reason}: {code}"),
        (code, message) if message.starts_with(code) => message.to_owned(),
        (code, message) if code == reason => format!("{reason}: {message}"),
        (code, message) => format!("{reason}: {code}: {message}"),
    }
}

fn describe_response(response: &LlmResponse) -> String {
    if let (Some(seq), Some(saved)) = (response.repeats, &response.saved) {
        return format!(
            "{}/{} from the cache, as in frame {seq}: {}+{} tokens, {} saved",
            response.provider,
            response.model,
            saved.tokens_in,
            saved.tokens_out,
            dollars(saved.cost_micro_usd)
        );
    }
    let cost = match response.cost_micro_usd {
        0 => String::new(),
        micro_usd => format!(", {}", dollars(micro_usd)),
    };
    let used = format!(
        "{}+{} tokens{cost}",
        response.tokens_in, response.tokens_out
    );
    let attempts = match response.attempts.len() {
        0 | 1 => String::new(),
        count => format!(", {count} attempts"),
    };
    if let Some(error) = &response.error {
        let used = match response.tokens_in == 0 && response.tokens_out == 0 {
            true => String::new(),
            false => format!(", {used}"),
        };
        return format!(
            "{}: {} after {} ms{used}{attempts}",
            error.code, error.message, response.duration_ms
        );
    }
    format!(
        "{}/{} {used}, {} ms{}{attempts}",
        response.provider,
        response.model,
        response.duration_ms,
        if response.cached {
            ", from the cache"
        } else {
            ""
        }
    )
}

/// Millionths of a US dollar, for reading.
pub fn dollars(micro_usd: u64) -> String {
    format!("${}.{:06}", micro_usd / 1_000_000, micro_usd % 1_000_000)
}
