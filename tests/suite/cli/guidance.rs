//! What the command line says so that nobody has to guess: usages, locations, how many more.

use super::Desk;

const BROKEN: &str =
    "kind: workflow\nname: broken\nversion: 1.0.0\npipeline:\n  - {id: a, transfrom: {}}\n";

#[test]
fn locations_can_be_opened_from_the_working_directory() {
    let desk = Desk::new();
    desk.write_kit("broken", BROKEN);
    let place = "--> broken/workflows/broken.workflow.yaml:5:";
    desk.ktsu(&["validate", "broken"])
        .is(1)
        .says("broken/workflows/broken.workflow.yaml: ")
        .says(place);
    desk.ktsu(&["run", "broken"]).is(2).warns(place);
    // Programs get paths within the kit.
    let faults = desk.ktsu(&["validate", "broken", "--json"]).is(1).json();
    let file = &faults["faults"][0]["file"];
    assert_eq!(file, "workflows/broken.workflow.yaml");
    let mut within = desk.command(&["validate"]);
    let within = within.current_dir(desk.path().join("broken")).output();
    let said = String::from_utf8(within.unwrap().stdout).unwrap();
    assert!(
        said.contains("--> workflows/broken.workflow.yaml:5:"),
        "{said}"
    );
}

#[test]
fn an_ambiguous_id_says_how_many_more_runs_match() {
    let desk = Desk::new();
    let runs: Vec<String> = (0..7).map(|_| desk.hello()).collect();
    desk.ktsu(&["trace", "run_"])
        .is(2)
        .warns("run_ matches several runs:")
        .warns("\n  and 2 more\n");
    let owner = desk.start(&["--kit", &super::kit("hello")]);
    let said = desk.ktsu(&["cancel", "run_"]);
    said.is(2).warns(" and 2 more");
    drop(owner);
    assert_eq!(runs.len(), 7);
}

#[test]
fn a_usage_names_no_option_as_required_that_a_variable_gives() {
    let desk = Desk::new();
    let mut command = desk.command(&["invoke"]);
    let output = command.env("KTSU_ENV", "some.env.yaml").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("Usage: ktsu invoke [OPTIONS] <WORKFLOW>"),
        "{said}"
    );
    desk.ktsu(&["evidence", "export", "--bogus"])
        .is(2)
        .warns("Usage: ktsu evidence export ");
}

#[test]
fn help_is_wrapped_between_words_at_any_width() {
    let desk = Desk::new();
    let help = |width: &str, command: &[&str]| {
        let mut command = desk.command(&[command, &["--help"]].concat());
        let output = command.env("COLUMNS", width).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let words =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    for command in [&["run"][..], &["start"], &[]] {
        let wide = words(&help("1000", command));
        for width in [60, 80, 120] {
            let text = help(&width.to_string(), command);
            assert_eq!(words(&text), wide, "{command:?} at {width}");
            let long = text.lines().filter(|line| line.chars().count() > width);
            let long: Vec<&str> = long.filter(|line| !line.starts_with("Usage:")).collect();
            assert!(long.is_empty(), "{command:?} at {width}: {long:#?}");
        }
    }
}

#[test]
fn a_missing_folder_of_a_ledger_is_named() {
    let desk = Desk::new();
    for command in ["runs", "verify"] {
        desk.ktsu(&[command, "--ledger", "nowhere/below/ledger.db"])
            .is(2)
            .warns("there is no folder nowhere/below");
    }
    let said = desk.ktsu(&["runs"]);
    assert!(!said.err.contains("no folder"), "{said:#?}");
}

#[test]
fn the_refusal_to_resume_a_cancelled_run_names_its_status() {
    let desk = Desk::new();
    let waits = "kind: workflow\nname: waits\nversion: 1.0.0\npipeline:\n  \
                 - {id: a, transform: {inputs: [], ops: []}}\n";
    desk.write_kit("waits", waits);
    let said = desk.ktsu(&["run", "waits", "--json"]).is(0).json();
    let run = said["run_id"].as_str().unwrap();
    let fork = desk.ktsu(&["fork", run, "--before", "a", "--kit", "waits", "--json"]);
    let fork = fork.is(0).json();
    let branch = fork["branch_id"].as_str().unwrap();
    desk.ktsu(&["cancel", branch]).is(0);
    desk.ktsu(&["resume", branch, "--kit", "waits"])
        .is(2)
        .warns("the run is cancelled");
}
