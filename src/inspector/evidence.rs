//! The page of evidence: what is signed of the ledger, by which keys, and how an auditor verifies it.

use ktsu_evidence::notary::NotaryStatus;
use ktsu_evidence::summary::{EvidenceSummary, LastCheckpoint, key_states};
use ktsu_ledger::keys::TrustedKey;
use maud::{Markup, html};

use crate::frame::{PagePlace, Section, SignedIn, page};
use crate::text::Verbatim;
use crate::units::{counted, moment};

/// What is signed of a ledger, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidencePage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// What is signed.
    pub ledger: EvidenceSummary,
    /// The status of what signs.
    pub notary: NotaryStatus,
}

/// The page of evidence.
pub fn evidence_page(shown: &EvidencePage) -> String {
    let body = html! {
        (head(shown))
        div class="answer" {
            (checkpoint(shown.ledger.checkpoint.as_ref()))
            (keys(shown.ledger.keys.as_deref()))
            (how())
        }
    };
    let place = PagePlace::TOP;
    page(place, Section::None, "Evidence", &shown.by, &body)
}

fn head(shown: &EvidencePage) -> Markup {
    let (ledger, notary) = (&shown.ledger, &shown.notary);
    let signed = ledger
        .checkpoint
        .as_ref()
        .map_or(0, |last| last.signed.size);
    // The checkpoint itself, and what was appended since.
    let later = ledger.frames.saturating_sub(signed);
    let (witness, about) = match (&notary.witness, notary.has_witness) {
        (Some(why), _) => ("witness: failed", why.as_str()),
        (None, true) => ("witness: ok", "it has the last checkpoint"),
        (None, false) => ("witness: none", "the operator alone keeps the checkpoints"),
    };
    html! {
        div class="head" {
            h1 { "Evidence" }
            dl class="facts" {
                @if let Some(origin) = &ledger.origin {
                    div { dt { (Verbatim(origin)) } dd { "the name of the ledger, from its first frame" } }
                }
                div {
                    dt { (counted(signed, "frame")) " signed" }
                    dd {
                        @if ledger.frames == 0 { "nothing is recorded yet" }
                        @else { (counted(later, "frame")) " later, the last checkpoint among them" }
                    }
                }
                div { dt { (witness) } dd class=[notary.witness.is_some().then_some("error")] { (Verbatim(about)) } }
            }
            @if let Some(why) = &notary.signing {
                p class="note error" { "Nothing is signed at the moment: " (Verbatim(why)) }
            }
        }
    }
}

fn checkpoint(last: Option<&LastCheckpoint>) -> Markup {
    html! {
        section aria-label="Last checkpoint" {
            h2 { "Last checkpoint" }
            @match last {
                Some(last) => {
                    p class="dim" {
                        "over the first " (counted(last.signed.size, "frame")) ", recorded at " (moment(last.at))
                        ", signed by " span class="id" { (Verbatim(&last.signed.key)) }
                        ". Kept elsewhere, this note shows later whether anything before it was changed."
                    }
                    pre { (Verbatim(&last.signed.note)) }
                }
                None => p class="dim" { "There is none yet: the first run that ends is signed." },
            }
        }
    }
}

fn keys(all: Option<&[TrustedKey]>) -> Markup {
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
                                @for (key, state) in key_states(all) {
                                    tr {
                                        td class="id" { (Verbatim(&key.key)) }
                                        td { (state.as_str()) }
                                        td class="dim" {
                                            @if let Some(reason) = &key.revoked { (Verbatim(reason)) " " }
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
