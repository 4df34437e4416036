//! The result of a check, from what models replied.

use std::collections::BTreeMap;

use ktsu_ledger::event::LookedAt;
use serde_json::{Value, json};

use crate::bench::CheckError;
use crate::frames::FrameView;
use crate::http_mock::record::ServiceRecords;
use crate::model_judge::calls::{JudgeAnswer, JudgeCall};
use crate::model_judge::check::JudgeCheck;
use crate::model_judge::question::{
    CallsOfCheck, JudgeQuestion, JudgeSettings, JudgeSubject, wrong,
};
use crate::model_judge::reply::{Judged, read};
use crate::results::{CheckFinding, MAX_FRAMES_NAMED, printed, shortened, value_looked_at};
use crate::score::rounded;

/// The most characters of what a model gives as its reason.
const MAX_REASON: usize = 500;

/// The most scores that a reason lists.
const MAX_LISTED: usize = 20;

/// The replies of models about one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JudgeReplies {
    /// The calls, in the order of their requests.
    pub calls: Vec<JudgeCall>,
    /// The reasons why checks asked nothing, by the names of their invariants.
    pub refused: BTreeMap<String, String>,
}

/// A reply that counts.
struct Sample<'c> {
    judged: Judged,
    answer: &'c JudgeAnswer,
    is_repaired: bool,
}

impl JudgeReplies {
    /// Returns `true` if a check has asked anything.
    pub(crate) fn has_calls_of(&self, check: &str) -> bool {
        self.calls.iter().any(|call| call.check == check)
    }

    /// The time that the calls of a check took together, in milliseconds.
    pub fn duration_ms(&self, check: &str) -> u64 {
        let own = self.calls.iter().filter(|call| call.check == check);
        let answers = own.filter_map(|call| call.answer.as_ref());
        answers.fold(0, |sum, answer| sum.saturating_add(answer.duration_ms))
    }
}

/// Checks that a model's score reaches the threshold.
pub(crate) fn find(
    (name, check): (&str, &JudgeCheck),
    envelope: &Value,
    services: Option<&ServiceRecords>,
    replies: Option<&JudgeReplies>,
    frames: &[FrameView],
) -> Result<CheckFinding, CheckError> {
    let replies = replies.ok_or_else(|| CheckError::new("no model is asked here"))?;
    if let Some(why) = replies.refused.get(name) {
        return Err(CheckError::new(printed(why.as_bytes())));
    }
    // What is judged of a workspace is not in the run: its text is in the recorded request alone.
    let subject = JudgeSubject {
        envelope,
        files: None,
        services,
    };
    let question = JudgeQuestion::of(name, check, &subject).ok();
    let settings = JudgeSettings::of(check);
    let own = CallsOfCheck {
        check: name,
        settings: &settings,
        prompt: question.as_ref().map(JudgeQuestion::prompt_digest),
        calls: &replies.calls,
    };
    let samples: Result<Vec<Sample<'_>>, CheckError> =
        own.samples().map(|sample| one(&own, sample)).collect();
    let mut samples = samples?;
    let looked_at = looked_at(&own, &samples);
    let listed = listed(&samples);
    samples.sort_by(|one, other| one.judged.score.total_cmp(&other.judged.score));
    let (score, middle) = median(&samples)?;
    let holds = score >= check.pass_threshold;
    let words = match holds {
        true => "reaches",
        false => "is below",
    };
    let mut reason = format!("{score} {words} {}", check.pass_threshold);
    reason.push_str(&listed);
    let said = shortened(&printed(middle.judged.reason.as_bytes()), MAX_REASON);
    if !said.is_empty() {
        reason.push_str(&format!(": {said}"));
    }
    let left_out = question.and_then(|question| question.left_out());
    for note in notes(check, &samples, (holds, left_out), frames) {
        reason.push_str(&format!(" ({note})"));
    }
    let found = CheckFinding::of(holds, reason, looked_at);
    Ok(CheckFinding {
        score: Some(score),
        ..found
    })
}

/// The reply to a sample: the repaired one where there is one.
fn one<'c>(own: &CallsOfCheck<'c>, sample: u32) -> Result<Sample<'c>, CheckError> {
    let turn = own
        .turn(sample)
        .ok_or_else(|| CheckError::new("the model was not asked"))?;
    let (call, is_repaired) = match wrong(turn) {
        None => (turn, false),
        Some(wrong) => {
            let repair = own.repair(turn);
            let words = || format!("the model's reply cannot be used: {wrong}");
            (repair.ok_or_else(|| CheckError::new(words()))?, true)
        }
    };
    let answer = call.answer.as_ref();
    let answer = answer.ok_or_else(|| CheckError::new("the model has not replied"))?;
    let text = answer.text.as_ref().map_err(|why| {
        let why = printed(why.as_bytes());
        CheckError::new(format!("the model gave no reply: {why}"))
    })?;
    let judged = read(text)
        .map_err(|wrong| CheckError::new(format!("the model's replies cannot be used: {wrong}")))?;
    Ok(Sample {
        judged,
        answer,
        is_repaired,
    })
}

/// The median of sorted samples, and the sample that is nearest to it from below.
fn median<'s, 'c>(sorted: &'s [Sample<'c>]) -> Result<(f64, &'s Sample<'c>), CheckError> {
    let last = sorted.len().saturating_sub(1);
    let (lower, upper) = (sorted.get(last / 2), sorted.get(last.div_ceil(2)));
    let (Some(lower), Some(upper)) = (lower, upper) else {
        return Err(CheckError::new("the model was not asked"));
    };
    let score = rounded((lower.judged.score + upper.judged.score) / 2.0);
    Ok((score, lower))
}

/// `, the median of 0.4, 0.7, 0.9`.
fn listed(samples: &[Sample<'_>]) -> String {
    if samples.len() < 2 {
        return String::new();
    }
    let scores = samples.iter().take(MAX_LISTED);
    let scores = scores.map(|sample| rounded(sample.judged.score).to_string());
    let scores = scores.collect::<Vec<_>>().join(", ");
    match samples.len().checked_sub(MAX_LISTED) {
        None | Some(0) => format!(", the median of {scores}"),
        Some(more) => format!(", the median of {scores} and {more} more"),
    }
}

/// Notes on a score, for people.
fn notes(
    check: &JudgeCheck,
    samples: &[Sample<'_>],
    (holds, left_out): (bool, Option<(usize, usize)>),
    frames: &[FrameView],
) -> Vec<String> {
    let mut notes = Vec::new();
    let outside = samples.iter().find_map(|sample| {
        let written = sample.judged.outside?;
        Some((written, sample.judged.score))
    });
    if let Some((written, score)) = outside {
        notes.push(format!(
            "a score of {written} is outside of 0 to 1 and counts as {score}"
        ));
    }
    let repaired = samples.iter().filter(|sample| sample.is_repaired).count();
    if repaired > 0 {
        notes.push(format!(
            "asked again for a reply that can be used: {repaired}"
        ));
    }
    if let [only] = samples
        && only.judged.passed == Some(!holds)
    {
        let word = if holds { "fails" } else { "passes" };
        notes.push(format!("the model itself says that it {word}"));
    }
    if let Some((left_out, all)) = left_out {
        notes.push(format!("{left_out} of {all} bytes were left out"));
    }
    notes.extend(shared_model(check, samples, frames));
    notes
}

/// A warning where a model judges its own work.
fn shared_model(
    check: &JudgeCheck,
    samples: &[Sample<'_>],
    frames: &[FrameView],
) -> Option<String> {
    let is_same = |frame: &FrameView| {
        let mut answers = samples.iter().map(|sample| sample.answer);
        frame.kind == "llm.response"
            && answers.any(|answer| frame.answered_by(&answer.provider, &answer.model))
    };
    if let Some(frame) = frames.iter().find(|frame| is_same(frame)) {
        let model = frame.model.as_deref().unwrap_or_default();
        let model = printed(model.as_bytes());
        return Some(format!("warning: the model {model} judges its own work"));
    }
    let asks = |frame: &&FrameView| frame.kind == "llm.request" && frame.asks_group(&check.group);
    frames.iter().find(asks).map(|_| {
        let group = printed(check.group.as_bytes());
        format!("warning: the model group {group} judges its own work")
    })
}

/// The prompt and the replies that count.
fn looked_at(own: &CallsOfCheck<'_>, samples: &[Sample<'_>]) -> LookedAt {
    let replies = samples.iter();
    let replies = replies.map(|one| json!([one.answer.frame, one.answer.output_hash]));
    let prompt = own.first().map(|first| first.messages);
    let value = json!({"prompt": prompt, "replies": replies.collect::<Value>()});
    let frames = samples.iter().map(|one| one.answer.frame);
    LookedAt {
        count: samples.len() as u64,
        frames: frames.take(MAX_FRAMES_NAMED).collect(),
        ..value_looked_at(&value)
    }
}
