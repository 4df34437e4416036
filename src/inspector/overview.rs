//! The page of an engine: the workflows that may be invoked, and its routes.

use maud::html;

use crate::frame::{PagePlace, Section, SignedIn, page, segment};
use crate::text::Verbatim;

/// What an engine serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverviewPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// The version of the engine.
    pub version: String,
    /// The state of its ledger.
    pub ledger: String,
    /// The workflows that the principal may invoke.
    pub workflows: Vec<OverviewWorkflow>,
    /// The routes that it may call.
    pub routes: Vec<OverviewRoute>,
}

/// A workflow that may be invoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverviewWorkflow {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The header that it requires, if any.
    pub header: Option<String>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverviewRoute {
    /// Method and path.
    pub name: String,
    /// One sentence.
    pub description: String,
}

/// The page of an engine.
pub fn overview_page(shown: &OverviewPage) -> String {
    let place = PagePlace::TOP;
    let body = html! {
        div class="head" {
            h1 { "ktsu " (Verbatim(&shown.version)) }
            p { "The ledger is " (Verbatim(shown.ledger.replace('_', " "))) "." }
        }
        @if !shown.workflows.is_empty() {
            section aria-label="Workflows" {
                h2 class="above" { "Workflows of " a href=(place.link("kit")) { "the kit" } }
                div class="scroll" tabindex="0" role="region" aria-label="Workflows that may be invoked" {
                    table class="runs" {
                        tbody {
                            @for one in &shown.workflows {
                                tr {
                                    td {
                                        a href=(place.link(&format!("kit/{}", segment(&one.name)))) { (Verbatim(&one.name)) }
                                        " " span class="dim" { (Verbatim(&one.version)) }
                                    }
                                    td class="id" { "ktsu invoke " (Verbatim(&one.name)) }
                                    td class="id" { "POST /invoke/" (Verbatim(&one.name)) }
                                    td class="dim" {
                                        @if let Some(header) = &one.header {
                                            "requires the header " (Verbatim(header))
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        section aria-label="Routes" {
            h2 class="above" { "Routes" }
            div class="scroll" tabindex="0" role="region" aria-label="Routes" {
                table class="runs" {
                    tbody {
                        @for one in &shown.routes {
                            tr { td class="id" { (Verbatim(&one.name)) } td { (Verbatim(&one.description)) } }
                        }
                    }
                }
            }
            p class="above" { "For programs: " a href="../openapi.json" { "openapi.json" } "." }
        }
    };
    page(
        place,
        Section::None,
        "Workflows and routes",
        &shown.by,
        &body,
    )
}
