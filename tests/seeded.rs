//! Whether the tests would find a defect: `seeded/defects.yaml` lists defects of every part of the
//! engine, and for each the tests that must fail with it.
//!
//! The campaign puts all of them into a copy of the sources, each behind a switch of its own, so that
//! one build serves all, and runs the tests with one switch on at a time. The program itself has
//! no switch.

#[path = "seeded/copy.rs"]
mod copy;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use copy::Scratch;
use rustix::process::Signal;

/// A test that has not ended by then is stopped, and has failed.
const TEST_TIMEOUT: Duration = Duration::from_secs(180);

/// A promise that the sources can be made to break.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Defect {
    name: String,
    breaks: String,
    file: String,
    replace: String,
    with: String,
    found_by: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn defects() -> Vec<Defect> {
    let text = std::fs::read_to_string(root().join("tests/seeded/defects.yaml"));
    serde_yaml::from_str(&text.expect("the list of defects")).expect("a list of defects")
}

/// The sources that defects change, with all of the defects in them; `switch` makes the expression
/// that says whether a defect is switched on.
fn seeded(defects: &[Defect], switch: impl Fn(&str) -> String) -> BTreeMap<&str, String> {
    let mut sources: BTreeMap<&str, String> = BTreeMap::new();
    for defect in defects {
        let source = sources.entry(&defect.file).or_insert_with(|| {
            let text = std::fs::read_to_string(root().join(&defect.file));
            text.unwrap_or_else(|error| panic!("{}: {}: {error}", defect.name, defect.file))
        });
        let found = source.matches(&defect.replace).count();
        assert_eq!(found, 1, "{}: {:?}", defect.name, defect.replace);
        assert!(defect.with.contains("SEEDED"), "{}: no switch", defect.name);
        let with = defect.with.replace("SEEDED", &switch(&defect.name));
        *source = source.replace(&defect.replace, &with);
    }
    sources
}

#[test]
fn every_defect_has_its_place_in_the_sources() {
    let defects = defects();
    assert!(defects.len() >= 25, "{}", defects.len());
    let names: BTreeSet<&str> = defects.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names.len(), defects.len(), "a name appears twice");
    for defect in &defects {
        let is_kebab = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(defect.name.chars().all(is_kebab), "{}", defect.name);
        assert!(defect.breaks.ends_with('.'), "{}", defect.name);
    }
    seeded(&defects, |_| "false".to_owned());
}

#[test]
fn every_test_that_is_to_find_a_defect_exists() {
    let files = copy::tracked(root()).into_iter();
    let sources = files.filter(|file| file.extension().is_some_and(|it| it == "rs"));
    let text: String = sources
        .map(|file| std::fs::read_to_string(root().join(file)).expect("a source"))
        .collect();
    for defect in defects() {
        assert!(!defect.found_by.is_empty(), "{}", defect.name);
        for test in &defect.found_by {
            let name = test.rsplit("::").next().unwrap_or_default();
            // Some are made by a macro, which is given their names.
            let exists = [format!("fn {name}("), format!("{name}: \"")];
            let exists = exists.iter().any(|start| text.contains(start));
            assert!(exists, "{}: {test}", defect.name);
        }
    }
}

/// Takes minutes: it builds everything anew. `KTSU_SEEDED` names the defects to switch on, separated
/// by commas; without it all are.
#[test]
#[ignore = "builds the workspace anew with the defects in it"]
fn every_seeded_defect_is_found() {
    let mut chosen = defects();
    let scratch = Scratch::new(root());
    let switch = scratch.switch();
    scratch.write(root(), &seeded(&chosen, |name| expression(&switch, name)));
    if let Ok(names) = std::env::var("KTSU_SEEDED") {
        let names: BTreeSet<&str> = names.split(',').collect();
        chosen.retain(|defect| names.contains(defect.name.as_str()));
        assert_eq!(chosen.len(), names.len(), "an unknown name: {names:?}");
    }
    let binaries = scratch.build();
    let turn = |name: &str| std::fs::write(&switch, name).expect("the switch");
    let mut wrong = Vec::new();

    turn("");
    let tests: BTreeSet<&str> = chosen
        .iter()
        .flat_map(|one| &one.found_by)
        .map(String::as_str)
        .collect();
    for test in tests {
        let (outcome, took) = run(&binaries, test);
        report(
            &format!("{outcome:?}"),
            took,
            &format!("without defects: {test}"),
        );
        if outcome != Outcome::Passed {
            wrong.push(format!("{test}: {outcome:?} without any defect"));
        }
    }
    for defect in &chosen {
        turn(&defect.name);
        for test in &defect.found_by {
            let (outcome, took) = run(&binaries, test);
            let found = matches!(outcome, Outcome::Failed | Outcome::Hung);
            let verdict = if found { "found" } else { "MISSED" };
            report(verdict, took, &format!("{} by {test}", defect.name));
            if !found {
                wrong.push(format!("{}: {test}: {outcome:?}", defect.name));
            }
        }
    }
    turn("");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A line of the table, which is shown at once, and also where all tests pass.
fn report(verdict: &str, took: Duration, what: &str) {
    let seconds = took.as_secs_f32();
    drop(writeln!(
        std::io::stderr(),
        "{verdict:>6} {seconds:6.1} s  {what}"
    ));
}

/// Whether the defect is switched on. Read from a file, because tests start programs without their
/// environment, and once for each process.
fn expression(switch: &Path, name: &str) -> String {
    format!(
        "({{ static SEEDED: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| \
         std::fs::read_to_string({switch:?}).is_ok_and(|on| on == {name:?})); *SEEDED }})"
    )
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Passed,
    Failed,
    Hung,
    /// The binary has no such test.
    NotRun,
}

/// Runs one test, `package target::module::test`, in a process of its own.
fn run(binaries: &BTreeMap<(String, String), copy::Binary>, test: &str) -> (Outcome, Duration) {
    let (package, rest) = test.split_once(' ').expect("a package and a test");
    let (target, path) = rest.split_once("::").expect("a target and a test");
    let binary = binaries.get(&(package.to_owned(), target.to_owned()));
    let binary = binary.unwrap_or_else(|| panic!("{test}: no such target"));
    let started = Instant::now();
    let output = tempfile::NamedTempFile::new().expect("a file");
    let mut child = Command::new(&binary.executable)
        .args(["--exact", path])
        .current_dir(&binary.folder)
        .env("CARGO_MANIFEST_DIR", &binary.folder)
        .stdin(Stdio::null())
        .stdout(output.reopen().expect("the file"))
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("the test's process");
    let status = loop {
        if let Some(status) = child.try_wait().expect("the test's process") {
            break status;
        }
        if started.elapsed() > TEST_TIMEOUT {
            let group = rustix::process::Pid::from_child(&child);
            let killed = rustix::process::kill_process_group(group, Signal::KILL);
            killed.expect("the test's processes");
            child.wait().expect("the test's process");
            return (Outcome::Hung, started.elapsed());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let printed = std::fs::read_to_string(output.path()).unwrap_or_default();
    let outcome = match (printed.contains("\nrunning 1 test\n"), status.success()) {
        (false, _) => Outcome::NotRun,
        (true, true) => Outcome::Passed,
        (true, false) => Outcome::Failed,
    };
    (outcome, started.elapsed())
}
