//! Engines that cannot append: their disk is nearly full, or another owner took the ledger.

use std::collections::BTreeSet;

use ktsu_ledger::appender::Options;
use ktsu_ledger::disk_space::DiskSpace;
use ktsu_ledger::store::{MemoryStore, Store as _};

use super::describe::{Case, Described};
use crate::support::ledgers::Recorded;
use crate::support::{KitDir, Within};

/// The methods by which something is said about a run.
pub(super) fn methods(word: &str) -> &'static [&'static str] {
    match word {
        "overlay" => &["POST", "PATCH"],
        _ => &["POST"],
    }
}

/// Posts bodies below the path of a recorded run, or to a whole path, and expects 507 and 503. Gives the answers, and how
/// many frames each engine left.
pub(super) async fn posts(
    api: &Described,
    kit: &KitDir,
    recorded: &Recorded,
    bodies: &[(&str, String)],
) -> (BTreeSet<Case>, [usize; 2]) {
    let run = recorded.stream.name();
    let full = Options {
        disk_space: DiskSpace::by(1000, || Some(999)),
        ..Options::default()
    };
    let (mut seen, mut left) = (BTreeSet::new(), [0, 0]);
    let engines = [(full, 507), (Options::default(), 503)];
    for ((options, status), left) in engines.into_iter().zip(&mut left) {
        let mut store = MemoryStore::new();
        recorded.put(&mut store);
        let within = Within::new(kit.load(), store.clone(), options, &[], None).await;
        if status == 503 {
            store.clone().acquire().unwrap();
        }
        let api = api.at(&within.client);
        for (word, body) in bodies {
            for method in methods(word) {
                let path = match word.starts_with('/') {
                    true => (*word).to_owned(),
                    false => format!("/runs/{run}/{word}"),
                };
                let answer = api.call(method, &path, &[], body).await;
                assert_eq!(answer.status, status, "{word}: {}", answer.text());
            }
        }
        *left = Recorded::read(&store, run).records.len();
        seen.extend(api.seen());
    }
    (seen, left)
}
