//! docs/cli.md against the commands that there are.

use std::collections::BTreeSet;

use super::{Desk, kit, repository};

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let said = Desk::new().ktsu(&["--help"]);
    let help = said.is(0).out.clone();
    let listed = help.split("Commands:").nth(1).unwrap();
    let lines = listed.lines().skip(1).take_while(|line| !line.is_empty());
    // The further lines of a description are indented more.
    let lines = lines.filter(|line| !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_has_its_place_in_the_contents_and_an_example() {
    let page = std::fs::read_to_string(repository().join("docs/cli.md")).unwrap();
    let anchor = |heading: &str| heading.to_lowercase().replace(',', "").replace(' ', "-");
    let sections: Vec<(&str, &str)> = page
        .split("\n## ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'))
        .collect();
    let (contents, _) = page.split_once("\n## ").unwrap();
    for (heading, _) in &sections {
        let link = format!("[{heading}](#{})", anchor(heading));
        let general = *heading == "What holds for all of them";
        assert!(
            general || contents.contains(&link),
            "{link} is not in the contents"
        );
    }
    let commands = commands();
    assert!(commands.len() >= 25, "{commands:?}");
    let mut without = BTreeSet::new();
    for command in commands {
        let examples = sections.iter().flat_map(|(_, text)| {
            let blocks = text.split("```").skip(1).step_by(2);
            blocks.flat_map(str::lines).map(str::trim_start)
        });
        let typed = format!("ktsu {command}");
        let is_typed = |line: &str| {
            let line = line.strip_prefix("$ ").unwrap_or(line);
            line == typed || line.starts_with(&format!("{typed} "))
        };
        if !examples.into_iter().any(is_typed) {
            without.insert(command);
        }
    }
    assert!(without.is_empty(), "no example of {without:?}");
}

#[test]
fn the_readme_shows_what_resuming_a_branch_needs() {
    let page = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let line = page
        .lines()
        .find(|line| line.starts_with("ktsu resume "))
        .unwrap();
    assert!(line.contains("--kit"), "{line}");
}

/// The commands of a page's samples below a heading, each with the lines that it is said to print.
fn samples(page: &str, heading: &str) -> Vec<(String, Vec<String>)> {
    let (_, below) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = below.split("\n## ").next().unwrap();
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for block in section.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap().replace("\\\n", " ");
        for line in block.lines() {
            match (line.strip_prefix("$ ktsu "), found.last_mut()) {
                (Some(command), _) => found.push((command.to_owned(), Vec::new())),
                (None, Some((_, printed))) => printed.push(line.to_owned()),
                (None, None) => panic!("{line} is printed by nothing"),
            }
        }
    }
    found
}

/// The words of a command, of which some may stand in quotes.
fn words(command: &str) -> Vec<String> {
    let parts = command.split('"').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    words.map(str::to_owned).collect()
}

/// A line without what is another one each time: ids, ports, how long it took.
fn lasting(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let unit = |at: usize| words.get(at).map(|word| word.trim_end_matches(','));
    let is_unit = |at: usize| matches!(unit(at), Some("ms" | "s"));
    let lasting = words.iter().enumerate().map(|(at, word)| {
        let begins = ["run_", "branch_", "127.0.0.1:", "ktsu/ledger/"].into_iter();
        match begins.into_iter().find(|begin| word.starts_with(begin)) {
            Some(begin) => begin,
            None if is_unit(at) || is_unit(at + 1) => "time",
            None => word,
        }
    });
    lasting.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_samples_of_looking_back_in_the_readme_are_what_is_printed() {
    let page = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let samples = samples(&page, "Looking back");
    assert_eq!(samples.len(), 5);
    let desk = Desk::new();
    let triage = kit("triage");
    let input = format!("@{triage}/examples/ticket.json");
    let said = desk.ktsu(&["run", &triage, "ticket", "--input", &input, "--json"]);
    let run = said.is(0).json()["run_id"].as_str().unwrap().to_owned();
    let mut branch = String::new();
    for (command, printed) in samples {
        let words = words(&command).into_iter().map(|word| match word.as_str() {
            "RUN" => run.clone(),
            "BRANCH" => branch.clone(),
            "kits/triage" => triage.clone(),
            _ => word,
        });
        let words: Vec<String> = words.collect();
        let said = desk.ktsu(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let all = format!("{}{}", said.out, said.err);
        if let Some(named) = all
            .split_whitespace()
            .find(|word| word.starts_with("branch_"))
        {
            branch = named.to_owned();
        }
        let lines: BTreeSet<String> = all.lines().map(lasting).collect();
        for line in printed.iter().map(|line| lasting(line)) {
            let left_out = line.is_empty() || line == "…";
            assert!(
                left_out || lines.contains(&line),
                "`ktsu {command}` does not print {line:?}, but\n{all}"
            );
        }
    }
}

/// The view of a terminal is another one, and says the same of each step.
#[test]
fn the_first_sample_of_the_readme_says_of_each_step_what_a_run_says() {
    let page = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let sample = page.split("```text\n").nth(1).unwrap();
    let sample = sample.split("```").next().unwrap();
    let said = Desk::new().ktsu(&["run", &kit("triage")]);
    let all = format!("{}{}", said.is(0).out, said.err);
    let printed: Vec<String> = all.lines().map(lasting).collect();
    let mut compared = 0;
    for line in sample.lines().map(str::trim_start) {
        let Some((mark, told)) = line.split_once(' ') else {
            continue;
        };
        let status = match mark {
            "✓" => "complete",
            "✗" => "failed",
            "–" => "skipped",
            _ => continue,
        };
        let told = lasting(told);
        let same = |line: &String| match told.split_once(" time time") {
            Some((step, rest)) if !told.contains(" complete in ") => {
                let step = step.trim_end();
                let begins = format!("step {step} {status} time time");
                let inside = format!("/{step} {status} time time");
                (line.starts_with(&begins) || line.contains(&inside)) && line.ends_with(rest)
            }
            _ => line.strip_prefix("✓ ") == Some(told.as_str()),
        };
        assert!(printed.iter().any(same), "{told:?} is not in {printed:#?}");
        compared += 1;
    }
    assert_eq!(compared, 12);
}
