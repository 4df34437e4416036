//! What the page of an eval shows, and the addresses of its views.

use ktsu_history::eval_sheet::{CheckChange, EvalSheet};
use ktsu_history::evals::{EvalReport, RunVerdict, ScenarioReport};
use ktsu_projections::lineage::LineageNode;

use crate::frame::{PagePlace, SignedIn, query, segment};

/// What the page of an eval shows.
#[derive(Debug, Clone, PartialEq)]
pub struct EvalPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// How it is looked at.
    pub view: EvalView,
    /// The eval.
    pub sheet: EvalSheet,
    /// The newest evals of the same spec, newest first.
    pub of_spec: Vec<EvalReport>,
    /// The eval of the same spec before this one, and the results that differ.
    pub since: Option<(String, Vec<CheckChange>)>,
    /// What the frames say that the selected run was judged by.
    pub frames: Vec<LineageNode>,
}

/// How an eval is looked at: the query of the page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvalView {
    /// The scenario that is selected, by its place.
    pub scenario: Option<usize>,
    /// The replica of it that is shown.
    pub replica: usize,
    /// Only scenarios that did not pass.
    pub failed_only: bool,
    /// Where the table begins.
    pub from: usize,
}

impl EvalView {
    /// The scenario whose findings are shown, with its place: the one that is selected, or the only one.
    pub fn selected<'r>(&self, report: &'r EvalReport) -> Option<(usize, &'r ScenarioReport)> {
        let only = (report.scenarios.len() == 1).then_some(0);
        let place = self.scenario.or(only)?;
        report
            .scenarios
            .get(place)
            .map(|scenario| (place, scenario))
    }

    /// The run of a scenario whose findings are shown.
    pub fn run<'r>(&self, scenario: &'r ScenarioReport) -> Option<&'r RunVerdict> {
        scenario.runs().get(self.replica)
    }
}

pub(crate) const PLACE: PagePlace = PagePlace::BELOW;

/// The address of the same page with another view.
pub(crate) fn link(shown: &EvalPage, view: &EvalView) -> String {
    let number = |number: usize| match number {
        0 => String::new(),
        number => number.to_string(),
    };
    let scenario = view.scenario.map(|place| place.to_string());
    let query = query(&[
        ("show", if view.failed_only { "failed" } else { "" }),
        ("scenario", scenario.as_deref().unwrap_or_default()),
        ("replica", &number(view.replica)),
        ("from", &number(view.from)),
    ]);
    let eval = segment(&shown.sheet.report.eval_id);
    PLACE.link(&format!("evals/{eval}{query}"))
}

/// The name of a scenario: that of the suite, else the run that was judged.
pub(crate) fn scenario_name(sheet: &EvalSheet, place: usize) -> &str {
    let run = || {
        let scenario = sheet.report.scenarios.get(place);
        let run = scenario.and_then(|scenario| scenario.runs().first());
        run.map_or("", |run| run.run_id.as_str())
    };
    match sheet.name(place) {
        "" => run(),
        name => name,
    }
}
