//! The schema of `GET /`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An overview of the engine.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Home {
    /// `ktsu`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The state of the ledger, as in `/health`.
    pub ledger: String,
    /// The caller, and how callers authenticate.
    pub authentication: Authentication,
    /// The workflows that the caller may invoke.
    pub workflows: Vec<HomeWorkflow>,
    /// The routes that the caller may use.
    pub routes: Vec<HomeRoute>,
    /// Where the API is described for programs.
    pub openapi: String,
    /// Where it is described for people.
    pub documentation: String,
}

/// Authentication.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Authentication {
    /// Whether a token is required.
    pub required: bool,
    /// The caller, if authenticated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// How a token is shown, where none was, or none that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
}

/// A workflow that may be invoked.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HomeWorkflow {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where it is invoked.
    pub invoke: String,
    /// The header in which the workflow expects a secret from its callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
}

/// A route.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HomeRoute {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// What it does.
    pub description: String,
}
