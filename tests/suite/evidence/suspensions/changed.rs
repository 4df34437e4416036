//! Every frame of a suspension, changed in every way that can be thought of by a machine: both verifiers
//! find it, but for what no record can show.

use serde_json::Value;

use super::super::mutants::every_mutant_of_is_found;
use super::{TWICE, patient};
use crate::support::scenarios::suspensions::{Suspended, Word};

fn is_about_suspensions(body: &Value) -> bool {
    let kind = body["type"].as_str().unwrap();
    let timer = kind == "timer.fired" && body["data"]["timer"] == "suspend";
    let own = ["suspend.", "command.", "note", "step.reset"];
    timer || own.iter().any(|one| kind.starts_with(one))
}

async fn cannot_be_changed(name: &str, suspended: Suspended) {
    let run = suspended.record().await;
    every_mutant_of_is_found(name, &run, is_about_suspensions);
}

#[tokio::test]
async fn a_suspension_cannot_be_changed() {
    cannot_be_changed("resumed", Suspended::resumed()).await;
}

#[tokio::test]
async fn two_suspensions_of_a_step_cannot_be_changed() {
    cannot_be_changed("twice", Suspended::with(&TWICE)).await;
}

#[tokio::test]
async fn a_suspension_that_is_late_cannot_be_changed() {
    let late = patient("{timeout: 1s}", Suspended::with(&[Word::Wait]));
    cannot_be_changed("late", late).await;
}
