//! `ktsu replay --against`: what recorded runs would do under another kit.

use std::collections::BTreeMap;
use std::process::ExitCode;

use ktsu_ledger::store::StoreError;
use ktsu_ledger::{Ledger, LedgerPlace, StreamId};
use ktsu_projections::lineage::item_name;
use serde_json::{Value, json};

use super::output::{BAD, BOLD, DIM, GOOD, WARN, line, line_dim, painted, print_json, words};
use super::{Common, Failure, text};
use ktsu_codes::{EXIT_COULD_NOT_RUN, EXIT_VERDICT};
use ktsu_history::kit_comparison::{
    self, KitComparison, KitComparisonError, KitDefinitions, RunSelection,
};
use ktsu_history::parallel;
use ktsu_kit as kit;
use ktsu_workflow::replay::Definitions;
use ktsu_workflow::simulate::{Divergence, SimulationError};

type SimulatedRuns = Vec<Result<KitComparison, (String, KitComparisonError)>>;

/// Holds runs against a kit.
pub(super) fn run(
    common: &Common,
    ledger: &LedgerPlace,
    kit: &kit::Kit,
    streams: &[StreamId],
    all: bool,
    wanted: &RunSelection,
) -> Result<ExitCode, Failure> {
    let workflows = kit.workflows.iter();
    let kit: KitDefinitions = workflows
        .map(|(name, one)| (name.clone(), std::sync::Arc::clone(&one.definition)))
        .collect();
    let begin = || {
        let reader = Ledger::open(ledger).reader()?;
        Ok::<_, StoreError>((reader, Definitions::default()))
    };
    let results = parallel::each(streams, begin, |(reader, definitions), stream| {
        let comparison = kit_comparison::compare_run(reader, stream, &kit, wanted, definitions);
        comparison.map_err(|why| (stream.name().to_owned(), why))
    })?;
    let results: SimulatedRuns = results.into_iter().filter_map(Result::transpose).collect();
    // With `--all`, runs that cannot be simulated are skipped; named explicitly, they are errors.
    let (steered, results): (SimulatedRuns, SimulatedRuns) =
        results.into_iter().partition(|one| all && was_steered(one));
    // A workflow that was asked for by its name must be there.
    let any = all && wanted.workflow.is_none();
    let (others, results): (SimulatedRuns, SimulatedRuns) = results
        .into_iter()
        .partition(|one| any && is_of_another_kit(one));
    let skipped = SkippedRuns {
        steered: steered.len(),
        of_other_kits: others.len(),
    };
    let code = results.iter().map(code).max().unwrap_or(0);
    if common.json {
        print_json(&body(&results, &skipped))?;
    } else {
        print(&results, &skipped);
    }
    Ok(ExitCode::from(code))
}

/// The runs of the ledger that are not compared, by the reason.
struct SkippedRuns {
    /// Branches, and runs that a person changed.
    steered: usize,
    /// Of workflows that the kit does not have.
    of_other_kits: usize,
}

fn is_of_another_kit(result: &Result<KitComparison, (String, KitComparisonError)>) -> bool {
    matches!(result, Err((_, KitComparisonError::NoWorkflow(_))))
}

/// Returns `true` if a run is a branch, or a person changed it on the way.
fn was_steered(result: &Result<KitComparison, (String, KitComparisonError)>) -> bool {
    use SimulationError::{Disturbed, NoInvocation};
    let Err((_, KitComparisonError::NotRehearsed(why))) = result else {
        return false;
    };
    matches!(why, Disturbed(..) | NoInvocation)
}

fn code(result: &Result<KitComparison, (String, KitComparisonError)>) -> u8 {
    match result {
        Ok(comparison) if comparison.divergences.is_empty() => 0,
        Ok(_) => EXIT_VERDICT,
        Err(_) => EXIT_COULD_NOT_RUN,
    }
}

/// The number of divergences of each kind, and of the runs that have them.
fn summary(results: &SimulatedRuns) -> BTreeMap<String, (usize, usize)> {
    let mut kinds: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for comparison in results.iter().flatten() {
        let mut of_run: BTreeMap<String, usize> = BTreeMap::new();
        for one in &comparison.divergences {
            *of_run.entry(one.what.name()).or_default() += 1;
        }
        for (kind, count) in of_run {
            let entry = kinds.entry(kind).or_default();
            entry.0 += count;
            entry.1 += 1;
        }
    }
    kinds
}

fn counts(results: &SimulatedRuns) -> (usize, usize, usize) {
    let of = |wanted: u8| results.iter().filter(|one| code(one) == wanted).count();
    (of(0), of(EXIT_VERDICT), of(EXIT_COULD_NOT_RUN))
}

fn body(results: &SimulatedRuns, skipped: &SkippedRuns) -> Value {
    let (same, diverged, failed) = counts(results);
    let kinds: BTreeMap<String, Value> = summary(results)
        .into_iter()
        .map(|(kind, (count, runs))| (kind, json!({"divergences": count, "runs": runs})))
        .collect();
    let runs: Vec<Value> = results
        .iter()
        .map(|one| match one {
            Ok(comparison) => json!(comparison),
            Err((run, why)) => json!({"run_id": run, "error": why.to_string()}),
        })
        .collect();
    json!({
        "runs": runs,
        "summary": {
            "same": same,
            "diverged": diverged,
            "could_not_run": failed,
            "skipped": skipped.steered + skipped.of_other_kits,
            "of_other_kits": skipped.of_other_kits,
            "kinds": kinds,
        },
    })
}

fn print(results: &SimulatedRuns, skipped: &SkippedRuns) {
    for one in results {
        match one {
            Ok(comparison) if comparison.divergences.is_empty() => {}
            Ok(comparison) => {
                line(&format!(
                    "{} {}  {}",
                    painted(BAD, "diverges"),
                    text::line(&comparison.run_id),
                    text::line(&comparison.workflow)
                ));
                for one in &comparison.divergences {
                    if !words(&in_words(one), 4) {
                        return;
                    }
                }
            }
            Err((run, why)) => {
                let why = why.to_string();
                let run = text::line(run);
                let why = text::line(&why);
                words(
                    &format!("{} {run}: {why}", painted(WARN, "could not run")),
                    2,
                );
            }
        }
    }
    let (same, diverged, failed) = counts(results);
    let mark = match (diverged, failed) {
        (0, 0) => painted(GOOD, "no divergence"),
        (0, _) => painted(WARN, "could not run"),
        (_, _) => painted(BAD, "diverged"),
    };
    line(&format!(
        "{mark}: {}, {same} the same, {diverged} diverged, {failed} could not run",
        text::count(results.len(), "run")
    ));
    for (count, which) in [
        (skipped.steered, "branches and runs changed by a person"),
        (
            skipped.of_other_kits,
            "runs of workflows that this kit does not have",
        ),
    ] {
        if count > 0 {
            line_dim(&format!("  {count} skipped: {which}"));
        }
    }
    for (kind, (count, runs)) in summary(results) {
        line(&format!(
            "  {kind:<18} {count} in {}",
            text::count(runs, "run")
        ));
    }
}

/// The longest value that is shown; `--json` has the whole.
const SHOWN: usize = 160;

fn in_words(one: &Divergence) -> String {
    let side = |value: &Option<Value>| match value {
        None => "nothing".to_owned(),
        Some(value) => text::short(&value.to_string(), SHOWN),
    };
    let mut place = match one.step.as_str() {
        "" => "run".to_owned(),
        step => format!("step {}", text::line(&item_name(step, one.item))),
    };
    if let (Some(server), Some(tool)) = (&one.server, &one.tool) {
        place.push_str(&format!(
            " tool {} of {}",
            text::line(tool),
            text::line(server)
        ));
    }
    if let Some(frame) = one.frame {
        place.push_str(&format!(" (frame {frame})"));
    }
    let field = match one.field.as_str() {
        "" => String::new(),
        field => format!(" {}", text::line(field)),
    };
    format!(
        "  {place}: {}{field}: {} {}, {} {}",
        painted(BOLD, &one.what.name()),
        painted(DIM, "recorded"),
        side(&one.history),
        painted(DIM, "with the new definition"),
        side(&one.decided)
    )
}
