//! docs/cli.md against the commands that there are.

use std::collections::BTreeSet;

use super::{Desk, repository};

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let said = Desk::new().ktsu(&["--help"]);
    let help = said.is(0).out.clone();
    let listed = help.split("Commands:").nth(1).unwrap();
    let lines = listed.lines().skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_has_its_place_in_the_contents_and_an_example() {
    let page = std::fs::read_to_string(repository().join("docs/cli.md")).unwrap();
    let anchor = |heading: &str| heading.to_lowercase().replace(' ', "-");
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
