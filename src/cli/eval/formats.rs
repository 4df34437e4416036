//! Reports of suites as files: JUnit XML and Markdown.

use std::time::Duration;

use ktsu_history::evals::ScenarioReport;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::super::text;
use super::judged::{JudgedSuite, ShownRun, sum};
use super::report::share;

/// A test suite for each suite, a test case for each scenario.
pub(super) fn junit(judged: &[JudgedSuite<'_>]) -> String {
    let mut report = Report::new("ktsu");
    for one in judged {
        let mut suite = TestSuite::new(one.report.spec.file.as_str());
        suite.set_time(total(&one.shown));
        for (scenario, verdict, shown) in one.rows() {
            let reasons = reasons(verdict);
            let mut status = match verdict.status() {
                "passed" => TestCaseStatus::success(),
                "failed" => TestCaseStatus::non_success(NonSuccessKind::Failure),
                _ => TestCaseStatus::non_success(NonSuccessKind::Error),
            };
            if let Some(first) = reasons.first() {
                status.set_message(in_xml(first));
                status.set_description(in_xml(&reasons.join("\n")));
            }
            let mut case = TestCase::new(in_xml(scenario.name()), status);
            case.set_classname(one.report.spec.file.as_str());
            case.set_time(total(shown));
            suite.add_test_case(case);
        }
        report.add_test_suite(suite);
    }
    // Writing into memory does not fail.
    report.to_string().unwrap_or_default()
}

/// A text without what no XML may have, and the writer does not leave out.
fn in_xml(words: &str) -> String {
    words.replace(['\u{FFFE}', '\u{FFFF}'], "\u{FFFD}")
}

fn total(shown: &[ShownRun]) -> Duration {
    Duration::from_millis(sum(shown.iter().map(|shown| shown.wall_ms)))
}

/// The reasons why a scenario did not pass: what each check says that did not, of every run.
fn reasons(verdict: &ScenarioReport) -> Vec<String> {
    let runs = verdict.runs().iter().filter(|run| !run.passed);
    runs.flat_map(|run| {
        let error = run
            .error
            .iter()
            .map(|error| format!("{}: {error}", run.run_id));
        let results = run.results.iter().filter(|result| !result.passed);
        let results =
            results.map(|result| format!("{}: {}: {}", run.run_id, result.name, result.reason));
        error.chain(results).collect::<Vec<String>>()
    })
    .collect()
}

/// A table of scenarios for each suite, and what did not hold.
pub(super) fn markdown(judged: &[JudgedSuite<'_>]) -> String {
    let mut page = String::new();
    for one in judged {
        let report = &one.report;
        let rate = share(report.passed, report.scenarios.len() as u64);
        let cost = text::cost(one.cost());
        page.push_str(&format!(
            "## {}\n\n{}. {rate} passed, {cost}. Recorded as `{}`.\n\n",
            cell(&report.spec.file),
            one.totals(),
            report.eval_id
        ));
        page.push_str(
            "| scenario | verdict | score | runs | time | cost |\n|---|---|---|---|---|---|\n",
        );
        for (scenario, verdict, shown) in one.rows() {
            let runs = verdict.runs().iter().map(|run| format!("`{}`", run.run_id));
            let runs: Vec<String> = runs.collect();
            let flaky = if verdict.is_flaky() { ", flaky" } else { "" };
            let score = verdict
                .composite()
                .map_or_else(String::new, |score| score.to_string());
            let time = u64::try_from(total(shown).as_millis()).unwrap_or(u64::MAX);
            let cost = sum(shown.iter().map(ShownRun::cost));
            page.push_str(&format!(
                "| {} | {}{flaky} | {score} | {} | {} | {} |\n",
                cell(scenario.name()),
                verdict.status(),
                runs.join(" "),
                text::duration(time),
                text::cost(cost)
            ));
        }
        page.push('\n');
        let reasons = one.rows().flat_map(|(scenario, verdict, _)| {
            let name = cell(scenario.name());
            let reasons = reasons(verdict).into_iter();
            reasons.map(move |reason| format!("- {name}: {}\n", cell(&reason)))
        });
        let reasons: String = reasons.collect();
        if !reasons.is_empty() {
            page.push_str(&reasons);
            page.push('\n');
        }
    }
    page
}

/// A text that cannot end its cell, nor become markup.
fn cell(words: &str) -> String {
    let mut safe = String::with_capacity(words.len());
    for character in text::line(words).chars() {
        if "\\`*_{}[]<>#|!&~".contains(character) {
            safe.push('\\');
        }
        safe.push(character);
    }
    safe
}
