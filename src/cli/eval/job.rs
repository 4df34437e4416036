//! The suites to judge, and the arguments for it.

use std::path::PathBuf;

use ktsu_eval::EvalRecord;
use ktsu_ledger::StreamId;

use super::suites::SuiteFile;

/// What both take.
#[derive(Debug, clap::Args)]
pub(super) struct BenchArguments {
    /// The environment file [default: the nearest environments/local.env.yaml, from the kit upward]
    #[arg(long, env = "KTSU_ENV", value_name = "FILE")]
    pub(super) env: Option<PathBuf>,
    /// How many runs there are at a time
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(super) parallel: u8,
    /// Where no further run begins once those of the eval have cost so much, in US dollars [default: what
    /// the spec has as limits.cost_usd]
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub(super) cost_limit: Option<u64>,
    /// Refuses to run what asks a model elsewhere: only scripted providers answer
    #[arg(long)]
    pub(super) offline: bool,
    /// Runs programs of the suite as yourself, with all that you may do; the verdict says so
    #[arg(long)]
    pub(super) no_sandbox: bool,
    /// Writes the verdicts to a file as JUnit XML, too
    #[arg(long, value_name = "FILE")]
    pub(super) junit: Option<PathBuf>,
    /// Writes a summary to a file in Markdown, too
    #[arg(long, value_name = "FILE")]
    pub(super) markdown: Option<PathBuf>,
}

/// The suites, or the eval, to judge.
pub(super) enum Job {
    /// These suites, each as a new eval.
    New(Vec<SuiteFile>),
    /// The rest of an eval.
    Rest(Box<(SuiteFile, StreamId, EvalRecord)>),
    /// All of an eval once more, as a new one; only what has no verdict runs again.
    Errors(Box<(SuiteFile, StreamId, EvalRecord)>),
    /// All of an eval once more, as a new one; nothing runs again.
    Score(Box<(SuiteFile, StreamId, EvalRecord)>),
}

impl Job {
    /// The suites.
    pub(super) fn suites(&self) -> impl Iterator<Item = &SuiteFile> {
        let (many, one) = match self {
            Self::New(suites) => (suites.as_slice(), None),
            Self::Rest(before) | Self::Errors(before) | Self::Score(before) => {
                ([].as_slice(), Some(&before.0))
            }
        };
        many.iter().chain(one)
    }
}

/// An amount in US dollars, as millionths of one.
fn dollars(amount: &str) -> Result<u64, String> {
    let amount = amount.parse::<f64>().ok();
    let amount = amount.filter(|amount| (0.0..=1e9).contains(amount));
    amount
        .map(ktsu_eval::micro_usd)
        .ok_or_else(|| "it must be an amount such as 2.50".to_owned())
}
