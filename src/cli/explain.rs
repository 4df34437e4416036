//! `ktsu explain`: what a code means, how to check it, and how to fix it.

use std::process::ExitCode;

use serde_json::json;

use super::output::line;
use super::{Common, Failure};
use ktsu_codes::nearest;

/// The pages of `docs/errors`, by code.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/error_pages.rs"));

/// What `explain` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The code, as shown in errors, runs and by `validate`: invalid_params, unknown-key [default: lists all]
    code: Option<String>,
}

/// Prints the page of a code, or the codes.
pub(super) fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Some(code) = &arguments.code else {
        let codes = PAGES.iter().map(|(code, _)| *code);
        match common.json {
            true => line(&json!({"codes": codes.collect::<Vec<_>>()}).to_string()),
            false => codes.fold(true, |_, code| line(code)),
        };
        return Ok(ExitCode::SUCCESS);
    };
    let (code, page) = page_of(code)?;
    line(&match common.json {
        true => json!({"code": code, "page": page}).to_string(),
        false => page.trim_end().to_owned(),
    });
    Ok(ExitCode::SUCCESS)
}

/// The page of a code, however its words are joined.
fn page_of(given: &str) -> Result<(&'static str, &'static str), Failure> {
    let plain = |code: &str| code.to_lowercase().replace('-', "_");
    let wanted = plain(given);
    let exact = PAGES.iter().find(|(code, _)| *code == given);
    let alike = || PAGES.iter().find(|(code, _)| plain(code) == wanted);
    if let Some(page) = exact.or_else(alike) {
        return Ok(*page);
    }
    let failure = Failure::could_not_run(format!("there is no error code {given:?}"));
    let near = nearest(given, PAGES.iter().map(|(code, _)| *code));
    Err(failure.hint(match near {
        Some(near) => format!("did you mean {near}? ktsu explain {near}"),
        None => "to list the codes: ktsu explain".to_owned(),
    }))
}

/// Returns `true` if there is a page of a code.
pub(super) fn knows(code: &str) -> bool {
    PAGES.iter().any(|(known, _)| *known == code)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_page_of_the_folder_can_be_asked_for() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        let files = std::fs::read_dir(folder).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let names: BTreeSet<String> = names
            .map(|name| name.strip_suffix(".md").unwrap().to_owned())
            .collect();
        let known: BTreeSet<String> = PAGES.iter().map(|(code, _)| (*code).to_owned()).collect();
        assert_eq!(known, names);
        for (code, page) in PAGES {
            assert_eq!(page.split_whitespace().nth(1), Some(*code));
            assert_eq!(page_of(code).unwrap().0, *code);
        }
    }

    #[test]
    fn a_code_is_found_however_its_words_are_joined_and_a_slip_is_reported() {
        assert_eq!(page_of("INVALID-PARAMS").unwrap().0, "invalid_params");
        let told = format!("{:?}", page_of("invalid_parms").unwrap_err());
        assert!(told.contains("did you mean invalid_params?"), "{told}");
    }
}
