//! The shape of what `GET /` says.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is here.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Home {
    /// `ktsu`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// How the ledger stands, as `/health` says it.
    pub ledger: String,
    /// Who asks, and how that is told.
    pub authentication: Authentication,
    /// What whoever asks may invoke.
    pub workflows: Vec<HomeWorkflow>,
    /// What whoever asks may call.
    pub routes: Vec<HomeRoute>,
    /// Where the API is described for programs.
    pub openapi: String,
    /// Where it is described for people.
    pub documentation: String,
}

/// Who asks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Authentication {
    /// Whether a token is asked for here.
    pub required: bool,
    /// Who asks, if that is known.
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
    /// The header in which it asks its callers for a secret of its own.
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
