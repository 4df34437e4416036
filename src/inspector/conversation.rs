//! What an agent and the models said to each other, as people read it: by roles.

use ktsu_history::step_record::{
    AskedTool, ConversationEntry, ModelExchange, ResultBlock, TaskConversation, ToolOutput,
};
use ktsu_ledger::event::{CallAttempt, Purpose};
use maud::{Markup, html};

use crate::frame::own_frame_link;
use crate::text::{Verbatim, beginning};
use crate::units::{cost, counted, duration, moment, size};
use crate::value::ValueView;

/// The most parts of a conversation on a page.
const MAX_ENTRIES: usize = 400;
/// The most parts in a panel beside something else.
const MAX_IN_PANEL: usize = 8;
/// The most characters of what is said about a call.
const MAX_WORDS: usize = 400;

/// The name under which a conversation is wanted whole.
const ALL: &str = "conversation";

/// The tasks of an agent: the last one open, earlier attempts closed but in a file. Where it is not wanted whole, its end.
pub(crate) fn conversation(
    view: &ValueView<'_>,
    tasks: &[TaskConversation],
    is_whole: bool,
) -> Markup {
    let is_file = view.place.is_file();
    let Some((last, earlier)) = tasks.split_last() else {
        return html! {};
    };
    html! {
        section class="conversation" aria-label="Conversation" {
            h3 { "Conversation" }
            @if is_whole {
                @for task in earlier {
                    details open[is_file || last.continues(task)] {
                        summary { "Attempt " (task.attempt) ", " (moment(task.at)) @if let Some((_, end)) = &task.end { ": " (Verbatim(end)) } }
                        (entries(view, task, MAX_ENTRIES))
                    }
                }
            } @else if !earlier.is_empty() {
                p class="dim" { (counted(earlier.len() as u64, "earlier attempt")) @if let Some(page) = &view.page { ": " a href=(page) { "all of it" } } @else { " left out" } }
            }
            (entries(view, last, if is_whole { MAX_ENTRIES } else { MAX_IN_PANEL }))
        }
    }
}

fn entries(view: &ValueView<'_>, task: &TaskConversation, most: usize) -> Markup {
    let most = if view.all == ALL { usize::MAX } else { most };
    let left_out = task.entries.len().saturating_sub(most);
    html! {
        @if task.attempt > 1 { p class="dim" { "Attempt " (task.attempt) ", from frame " (frame(view, task.frame)) " on" } }
        @if left_out > 0 {
            p class="cut" {
                (counted(left_out as u64, "earlier part"))
                @match &view.page {
                    Some(page) => { ": " a href={ (page) "?all=" (ALL) } { "the whole conversation" } },
                    None => " left out",
                }
            }
        }
        @for entry in task.entries.iter().skip(left_out) { (entry_of(view, entry)) }
        @if let Some((seq, end)) = &task.end {
            p class="dim" { "Ended, " (Verbatim(end)) ", frame " (frame(view, *seq)) }
        }
    }
}

fn frame(view: &ValueView<'_>, seq: u64) -> Markup {
    html! { a href=[own_frame_link(view.place, view.run_id, seq)] { (seq) } }
}

fn entry_of(view: &ValueView<'_>, entry: &ConversationEntry) -> Markup {
    match entry {
        ConversationEntry::Message { role, content } => html! {
            article class={ "turn " (class_of(role)) } {
                header { span class="role" { (Verbatim(role)) } span class="meta" { "frame " (frame(view, content.frame)) } }
                (view.placed(content))
            }
        },
        ConversationEntry::Earlier { role, frame: seq } => html! {
            p class="dim" { (Verbatim(role)) ": as in frame " (frame(view, *seq)) ", of an earlier attempt" }
        },
        ConversationEntry::Reply(reply) => reply_of(view, reply),
        ConversationEntry::Result(result) => result_of(view, result),
        ConversationEntry::Note { frame: seq, words } => html! {
            p class="event" { (Verbatim(beginning(words, MAX_WORDS).0)) " " span class="dim" { "frame " (frame(view, *seq)) } }
        },
    }
}

/// The class of a role: those that the style sheet knows.
fn class_of(role: &str) -> &'static str {
    match role {
        "system" => "system",
        "user" => "user",
        "assistant" => "assistant",
        "tool" => "tool",
        _ => "other",
    }
}

fn reply_of(view: &ValueView<'_>, reply: &ModelExchange) -> Markup {
    let (sent, received) = reply.tokens;
    html! {
        article class="turn assistant" {
            header {
                span class="role" {
                    "assistant"
                    @if !reply.model.is_empty() { " · " span class="id" { (Verbatim(&reply.model)) } }
                    @else { " · group " (Verbatim(&reply.group)) }
                    @match reply.purpose {
                        Purpose::Turn => {},
                        Purpose::Repair => " · repairs its reply",
                        Purpose::Reflect => " · reviews its draft",
                    }
                }
                span class="meta" {
                    @if let Some(seq) = reply.frame {
                        @if reply.is_cached { "no call · " }
                        @else { (sent) " + " (received) " tokens · " (duration(reply.duration_ms)) " · " }
                        @if reply.cost_micro_usd > 0 { (cost(reply.cost_micro_usd)) " · " }
                        "frames " (frame(view, reply.request)) "–" (frame(view, seq))
                    } @else { "no reply yet · frame " (frame(view, reply.request)) }
                }
            }
            @if let Some(offered) = reply.offered { p class="dim" { (counted(offered as u64, "tool")) " offered" } }
            @if let Some(seq) = reply.repeats { p class="dim" { "Repeats the reply of frame " (frame(view, seq)) } }
            @if let Some(error) = &reply.error { p class="error" { (Verbatim(error)) } }
            @if let Some(content) = reply.content.as_ref().filter(|content| content.bytes > 2) { (view.placed(content)) }
            @for call in &reply.calls { (call_of(view, call)) }
            @if !reply.attempts.is_empty() { (attempts(&reply.attempts)) }
        }
    }
}

fn call_of(view: &ValueView<'_>, call: &AskedTool) -> Markup {
    html! {
        div class="call" {
            p { "Calls " span class="id" { (Verbatim(&call.name)) } }
            (view.placed(&call.arguments))
            p class=(if call.is_failed { "error" } else { "dim" }) {
                @for words in &call.people { (Verbatim(words)) "; " }
                (Verbatim(beginning(&call.outcome, MAX_WORDS).0))
                @if let Some(seq) = call.returned { ", frame " (frame(view, seq)) }
            }
        }
    }
}

fn attempts(attempts: &[CallAttempt]) -> Markup {
    html! {
        table class="calls" {
            thead { tr { th scope="col" { "Attempt at" } th scope="col" { "Result" } th scope="col" class="number" { "Tokens" } th scope="col" class="number" { "Time" } th scope="col" class="number" { "Cost" } } }
            tbody {
                @for one in attempts {
                    tr {
                        td class="id" { (Verbatim(&one.model)) }
                        td { (Verbatim(&one.status)) }
                        td class="number" { (one.usage.tokens_in) " + " (one.usage.tokens_out) }
                        td class="number" { (duration(one.duration_ms)) }
                        td class="number" { (cost(one.usage.cost_micro_usd)) }
                    }
                }
            }
        }
    }
}

fn result_of(view: &ValueView<'_>, result: &ToolOutput) -> Markup {
    html! {
        article class={ "turn tool" @if result.is_error { " failed" } } {
            header {
                span class="role" { "tool · " span class="id" { (Verbatim(&result.name)) } @if result.is_error { " · error" } }
                span class="meta" {
                    @match result.sendings { 0 => "not sent", 1 => "sent once", many => { "sent " (many) " times" } }
                    @if result.sendings > 0 { " · " (duration(result.duration_ms)) }
                    " · frame " (frame(view, result.frame))
                }
            }
            @for block in &result.blocks {
                @match block {
                    ResultBlock::Text(value) | ResultBlock::Other(value) => (view.placed(value)),
                    ResultBlock::File { kind, bytes, digest } => p class="dim" {
                        (Verbatim(kind)) ", " (size(*bytes)) ", BLAKE3 " span class="id hash" { (Verbatim(digest)) }
                    },
                }
            }
            @if let Some(structured) = &result.structured { p class="dim" { "Structured" } (view.placed(structured)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::PagePlace;
    use ktsu_history::step_record::PlacedValue;
    use ktsu_ledger::event::CallUsage;

    #[test]
    fn a_reply_says_why_it_was_asked_for_and_a_call_who_decided_about_it() {
        let view = ValueView {
            place: PagePlace::BELOW,
            run_id: "run_1",
            page: Some("page".to_owned()),
            all: "",
            most: 100,
        };
        let arguments = PlacedValue {
            frame: 4,
            at: "/data/calls/0".to_owned(),
            bytes: 2,
            json: None,
        };
        let mut reply = ModelExchange {
            request: 3,
            purpose: Purpose::Turn,
            group: "std".to_owned(),
            offered: None,
            frame: Some(4),
            model: "desk/m".to_owned(),
            tokens: (7, 9),
            cost_micro_usd: 0,
            duration_ms: 5,
            is_cached: false,
            repeats: None,
            attempts: vec![CallAttempt {
                duration_ms: 2,
                model: "desk/first".to_owned(),
                status: "rate_limit".to_owned(),
                usage: CallUsage::default(),
            }],
            error: None,
            content: None,
            calls: vec![AskedTool {
                name: "kv.set".to_owned(),
                arguments,
                people: vec!["approved by ada".to_owned()],
                outcome: "returned".to_owned(),
                is_failed: false,
                returned: Some(6),
            }],
        };
        for (purpose, words) in [
            (Purpose::Repair, "repairs its reply"),
            (Purpose::Reflect, "reviews its draft"),
        ] {
            let plain = reply_of(&view, &reply).into_string();
            assert!(!plain.contains(words), "{plain}");
            assert!(
                plain.contains("desk/first") && plain.contains("rate_limit"),
                "{plain}"
            );
            assert!(
                plain.contains("approved by ada; returned, frame "),
                "{plain}"
            );
            let asked = ModelExchange {
                purpose,
                ..reply.clone()
            };
            let shown = reply_of(&view, &asked).into_string();
            assert!(shown.contains(words), "{shown}");
        }
        reply.is_cached = true;
        let cached = reply_of(&view, &reply).into_string();
        assert!(
            cached.contains("no call · ") && !cached.contains("7 + 9"),
            "{cached}"
        );
    }
}
