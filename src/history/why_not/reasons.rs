//! The answer to "why not?".

use serde::Serialize;

use crate::provenance::ValueOrigin;

/// The reasons why a step has the status it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WhyNot {
    /// `run_…`.
    pub run_id: String,
    /// The step that was asked about, by path; or the responder, by name.
    pub step: String,
    /// Of a responder: the object or the relation that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Its status; of a responder `reacted`, `waiting`, `did not react` or `never triggered`.
    pub status: String,
    /// From the step to the first cause.
    pub because: Vec<Reason>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The step it is about, by path.
    pub step: String,
    /// The frame that records it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<u64>,
    /// In words.
    pub text: String,
    /// The recorded values that decided it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<ValueOrigin>,
}
