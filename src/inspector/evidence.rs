//! The page of evidence: what is signed of the ledger, by which keys, and how an auditor verifies it.

use ktsu_ledger::Timestamp;
use maud::{Markup, html};

use crate::frame::{PagePlace, Section, SignedIn, page};
use crate::text::Verbatim;
use crate::units::{counted, moment};

/// What is signed of a ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvidencePage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// The name of the ledger; none while it has no frames.
    pub origin: Option<String>,
    /// The number of frames that were appended to it.
    pub frames: u64,
    /// The reason why the last attempt to sign failed.
    pub signing_failed: Option<String>,
    /// `ok`, `none`, or why the last attempt to hand a checkpoint over failed.
    pub witness: String,
    /// The last checkpoint.
    pub checkpoint: Option<ShownCheckpoint>,
    /// The keys, the last of which signs now; none if there are too many facts to look at all of them.
    pub keys: Option<Vec<ShownKey>>,
}

/// A signed checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownCheckpoint {
    /// The number of frames that it is over.
    pub frames: u64,
    /// When it was recorded.
    pub at: Timestamp,
    /// The id of its key.
    pub key: String,
    /// The note.
    pub note: String,
}

/// A key of a ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownKey {
    /// As auditors keep it.
    pub public_key: String,
    /// `in force`, `replaced` or `revoked`.
    pub state: String,
    /// The reason why it was revoked.
    pub reason: Option<String>,
    /// True if the key before it vouches for it.
    pub vouched: bool,
}

/// The page of evidence.
pub fn evidence_page(shown: &EvidencePage) -> String {
    let body = html! {
        (head(shown))
        div class="answer" {
            (checkpoint(shown.checkpoint.as_ref()))
            (keys(shown.keys.as_deref()))
            (how())
        }
    };
    let place = PagePlace::TOP;
    page(place, Section::None, "Evidence", &shown.by, &body)
}

fn head(shown: &EvidencePage) -> Markup {
    let signed = shown.checkpoint.as_ref().map_or(0, |last| last.frames);
    // The checkpoint itself, and what was appended since.
    let later = shown.frames.saturating_sub(signed);
    html! {
        div class="head" {
            h1 { "Evidence" }
            dl class="facts" {
                @if let Some(origin) = &shown.origin {
                    div { dt { (Verbatim(origin)) } dd { "the name of the ledger, from its first frame" } }
                }
                div {
                    dt { (counted(signed, "frame")) " signed" }
                    dd {
                        @if shown.frames == 0 { "nothing is recorded yet" }
                        @else { (counted(later, "frame")) " later, the last checkpoint among them" }
                    }
                }
                div {
                    dt { "witness: " @if shown.witness == "none" { "none" } @else if shown.witness == "ok" { "ok" } @else { "failed" } }
                    dd {
                        @match shown.witness.as_str() {
                            "none" => "the operator alone keeps the checkpoints",
                            "ok" => "it has the last checkpoint",
                            why => span class="error" { (Verbatim(why)) },
                        }
                    }
                }
            }
            @if let Some(why) = &shown.signing_failed {
                p class="note error" { "Nothing is signed at the moment: " (Verbatim(why)) }
            }
        }
    }
}

fn checkpoint(last: Option<&ShownCheckpoint>) -> Markup {
    html! {
        section aria-label="Last checkpoint" {
            h2 { "Last checkpoint" }
            @match last {
                Some(last) => {
                    p class="dim" {
                        "over the first " (counted(last.frames, "frame")) ", recorded at " (moment(last.at))
                        ", signed by " span class="id" { (Verbatim(&last.key)) }
                        ". Kept elsewhere, this note shows later whether anything before it was changed."
                    }
                    pre { (Verbatim(&last.note)) }
                }
                None => p class="dim" { "There is none yet: the first run that ends is signed." },
            }
        }
    }
}

fn keys(all: Option<&[ShownKey]>) -> Markup {
    html! {
        section aria-label="Keys" {
            h2 { "Keys" }
            @match all {
                None => p class="dim" { "The ledger is too large to look for all keys here: " code { "ktsu evidence key show" } " lists them." },
                Some([]) => p class="dim" { "There is no key yet." },
                Some(all) => {
                    div class="scroll" tabindex="0" role="region" aria-label="Public keys" {
                        table class="runs" {
                            tbody {
                                @for key in all {
                                    tr {
                                        td class="id" { (Verbatim(&key.public_key)) }
                                        td { (Verbatim(&key.state)) }
                                        td class="dim" {
                                            @if let Some(reason) = &key.reason { (Verbatim(reason)) " " }
                                            @if !key.vouched { "no earlier key vouches for it" }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn how() -> Markup {
    html! {
        section aria-label="For an auditor" {
            h2 { "For an auditor" }
            p {
                "The page of a run has its archive. It holds the frames, their proof and a verifier, and can be verified without this engine, in three ways:"
            }
            ul {
                li { code { "python3 verify.py evidence.tar --checkpoint held.note --key ledger.pub" } ", a verifier that shares no code with ktsu" }
                li { code { "ktsu evidence verify evidence.tar" } ", which also replays each run from its inputs" }
                li { a href="verify.html" { "verify.html" } ", in a browser: take the file of a release, and compare its hash" }
            }
            p class="dim" { "What this engine serves proves nothing against its operator: neither this page nor the verifier at this address." }
        }
    }
}
