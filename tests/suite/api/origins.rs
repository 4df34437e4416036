//! Where the values of envelopes came from: the page says of each what the command line prints.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ktsu_history::provenance::field_path;
use serde_json::Value;
use tokio::task::JoinSet;

use super::frames_page::{printed, reading, words_of};
use super::pages::is_harmless;
use crate::support::{Client, campaign};

/// How many paths are compared at once: each takes a process.
const AT_ONCE: usize = 4;

/// A run of a kit that needs no key: the words behind `ktsu run KIT`.
struct Example(&'static str, &'static [&'static str]);

const EXAMPLES: [Example; 12] = [
    Example(
        "triage",
        &["ticket", "--input", "@kits/triage/examples/ticket.json"],
    ),
    Example("triage", &[]),
    Example("hello", &[]),
    // Fails: its servers are not there.
    Example("access-request", &["--answers", ANSWERS]),
    Example("inbox", &[]),
    Example("inbox", &["--input", "@kits/inbox/examples/attack.json"]),
    Example("incidents", &["--answers", ANSWERS]),
    Example("intake", &[]),
    Example(
        "verification",
        &[
            "--yes",
            "--input",
            "@kits/verification/examples/missing.json",
        ],
    ),
    Example(
        "verification",
        &[
            "--yes",
            "--input",
            "@kits/verification/examples/reliable.json",
        ],
    ),
    Example("diligence", &["--goal", "Evaluate Acme"]),
    Example("research", &["--goal", "Tidal power"]),
];

/// The file, beside the ledger, that answers calls which need an approval.
const ANSWERS: &str = "answers.yaml";

/// The paths of the values of an envelope that have no others in them, as people type them.
fn leaves(envelope: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in envelope.as_object().unwrap() {
        match name.as_str() {
            "steps" => {
                for step in value.as_array().unwrap() {
                    let path = format!("step.{}", step["id"].as_str().unwrap());
                    below(&path, step, &mut found);
                }
            }
            _ => below(name, value, &mut found),
        }
    }
    found
}

/// The paths without those that differ from others only in the numbers of elements, but for a few of each kind.
fn few(paths: Vec<String>) -> Vec<String> {
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in paths {
        let parts = path.split(['[', ']']);
        let kind: String = parts.filter(|part| part.parse::<u64>().is_err()).collect();
        kinds.entry(kind).or_default().push(path);
    }
    let ends = |mut all: Vec<String>| {
        let last = all.pop();
        let middle = (all.len() > 1).then(|| all.swap_remove(all.len() / 2));
        all.truncate(1);
        all.into_iter().chain(middle).chain(last)
    };
    kinds.into_values().flat_map(ends).collect()
}

fn below(path: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                below(&field_path(path, name), value, found);
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            for (at, value) in elements.iter().enumerate() {
                below(&format!("{path}[{at}]"), value, found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

/// The lines of the answer of a page, as the command line has them: one for the value, for each heading and each row.
fn lines_of(page: &str) -> Vec<String> {
    let (_, answer) = page.split_once("aria-label=\"Answer\">").unwrap();
    let (answer, _) = answer.split_once("</section>").unwrap();
    let mut answer = answer.to_owned();
    // The value is below its path here, and behind it there.
    answer = answer.replacen("</h2>", " = ", 1);
    while let Some((before, rest)) = answer.split_once("<thead>") {
        let (_, after) = rest.split_once("</thead>").unwrap();
        answer = format!("{before}{after}");
    }
    for end in ["</pre>", "</h3>", "</tr>", "</p>"] {
        answer = answer.replace(end, "\n");
    }
    let lines = answer.lines().map(words_of);
    let lines = lines.map(|line| line.replace("; the API has all of them", ""));
    lines.filter(|line| !line.is_empty()).collect()
}

/// Whether a line of the page is a line of the command line, which cuts what is long.
fn is_same(shown: &str, printed: &str) -> bool {
    match printed.split_once('…') {
        None => shown == printed,
        Some((before, after)) => shown.starts_with(before.trim()) && shown.ends_with(after.trim()),
    }
}

/// The lines that both have, in order; of a list of more than 20 rows, the command line has the first ones.
fn are_same(path: &str, page: &[String], printed: &[String]) {
    let mut shown = page.iter().peekable();
    for line in printed {
        if let Some(more) = line
            .strip_prefix("… and ")
            .filter(|more| more.ends_with(" more"))
        {
            let count: usize = more.trim_end_matches(" more").parse().unwrap();
            for _ in 0..count.min(80) {
                shown.next();
            }
            shown.next_if(|line| line.starts_with("and ") && line.ends_with(" more"));
            continue;
        }
        let line = line.replace("… and ", "and ");
        let found = shown.next().map_or("nothing", String::as_str);
        assert!(
            is_same(found, &line),
            "{path}: {found:?} is not {line:?}: {page:#?}"
        );
    }
    let rest: Vec<&String> = shown.collect();
    assert!(rest.is_empty(), "{path}: only the page has {rest:?}");
}

async fn compare(client: Client, ledger: Arc<PathBuf>, run: String, path: String) {
    let sent: String = url::form_urlencoded::byte_serialize(path.as_bytes()).collect();
    let page = client
        .get(&format!("/inspector/runs/{run}/why?of={sent}"))
        .await;
    assert_eq!(page.status, 200, "{path}: {}", page.text());
    is_harmless(&page);
    let asked = path.clone();
    let printed = tokio::task::spawn_blocking(move || printed(&ledger, &run, ["--of", &asked]));
    are_same(&path, &lines_of(&page.text()), &printed.await.unwrap());
}

/// Runs an example to its end; gives the envelope of it.
fn ran(ledger: &Path, Example(kit, words): &Example) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
    let answers = ledger.with_file_name(ANSWERS);
    let words = words.iter().map(|word| match *word {
        ANSWERS => answers.as_os_str(),
        word => word.as_ref(),
    });
    command.args(["run", &format!("kits/{kit}")]).args(words);
    command.args(["--json", "--ledger"]).arg(ledger);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.stdin(std::process::Stdio::null());
    let output = command.env_clear().output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!(
            "{kit}: {error}: {text} {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_each_value_of_an_envelope_came_from_is_the_same_on_the_page_and_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Arc::new(folder.path().join("ledger.db"));
    let answers = "people: [{match: {kind: approval}, decision: approved}]\n";
    std::fs::write(ledger.with_file_name(ANSWERS), answers).unwrap();
    let examples = &EXAMPLES[..campaign(1, EXAMPLES.len())];
    let runs: Vec<String> = examples
        .iter()
        .map(|example| ran(&ledger, example)["run_id"].as_str().unwrap().to_owned())
        .collect();
    let engine = reading(&ledger);
    let client = engine.client();
    let mut compared = 0;
    for run in runs {
        let envelope = client.get(&format!("/runs/{run}/envelope")).await.json();
        let paths = few(leaves(&envelope));
        let mut tasks = JoinSet::new();
        for path in paths.into_iter().step_by(campaign(2, 1)) {
            compared += 1;
            if tasks.len() >= AT_ONCE {
                tasks.join_next().await.unwrap().unwrap();
            }
            tasks.spawn(compare(client.clone(), ledger.clone(), run.clone(), path));
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }
    assert!(compared > 30, "{compared}");
    engine.stop();
}
