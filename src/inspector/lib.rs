//! The inspector: pages that show runs, drawn from what is recorded.
//!
//! A page is a pure function of what it shows and of its address, which is its whole state. Pages load
//! one style sheet, and a script without which they work, too; everything from data is text ([`text::Verbatim`]).

mod assets;
mod branches;
mod change_sides;
mod compare;
mod conversation;
mod dag;
mod decide;
mod diff;
mod estimate;
mod eval;
mod eval_links;
mod eval_matrix;
mod eval_panel;
mod eval_plot;
#[cfg(test)]
mod eval_tests;
mod eval_view;
mod evals;
mod evidence;
mod failure;
mod fork_form;
mod frame;
mod frame_search;
mod frame_table;
mod frames;
pub mod graph;
mod graph_page;
mod graph_step;
mod graph_svg;
mod graph_words;
mod inbox;
mod kit;
mod kit_faults;
mod kit_panel;
mod kit_steps;
mod kit_view;
mod kit_workflow;
mod line_path;
mod opening;
mod overview;
mod run;
mod run_file;
mod runs;
mod runs_plot;
mod runs_view;
mod saved;
mod scale;
mod sign_in;
mod status;
mod step;
mod step_panel;
pub mod text;
mod time_range;
pub mod timeline;
mod units;
mod value;
mod why;
mod word_diff;
mod world;
mod world_drawing;
mod world_file;
mod world_svg;
mod world_tables;

pub use assets::{Asset, asset};
pub use decide::Permissions;
pub use diff::{DiffPage, diff_page};
pub use eval::eval_page;
pub use eval_panel::frames_to_say;
pub use eval_view::{EvalPage, EvalView};
pub use evals::{EvalsPage, EvalsView, evals_page};
pub use evidence::{EvidencePage, evidence_page};
pub use failure::{FailurePage, failure_page};
pub use fork_form::{
    EditedPromptView, ForkDraft, ForkOffer, ForkPage, ForkVerdict, fork_page, verdict_page,
};
pub use frame::{PagePlace, SignedIn};
pub use frame_search::FoundFrames;
pub use frames::{FramesPage, frames_opening, frames_page};
pub use graph_page::{GraphPage, graph_page, open_steps};
pub use inbox::{InboxPage, inbox_page};
pub use kit::{KitPage, ShownWorkflow, kit_page};
pub use kit_faults::{ShownCheck, ShownFault};
pub use kit_view::{ShownExample, WorkflowPage};
pub use kit_workflow::workflow_page;
pub use opening::{RunOpening, rest_of, run_opening};
pub use overview::{OverviewPage, OverviewRoute, OverviewWorkflow, overview_page};
pub use run::{RunKit, RunPage, run_page};
pub use run_file::run_file;
pub use runs::{RunsPage, runs_page};
pub use runs_view::RunsView;
pub use sign_in::{SignInPage, sign_in_page};
pub use step::{StepPage, step_page};
pub use step_panel::{ShownStep, error_in_words};
pub use time_range::TimeRange;
pub use why::{WhyAnswer, WhyPage, why_page};
pub use world::{MAX_ROWS as MAX_WORLD_ROWS, WorldPage, WorldPageView, world_page};
pub use world_file::world_file;

/// The policy of every page: nothing runs and nothing is loaded but what the engine serves, and no text becomes markup.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";
