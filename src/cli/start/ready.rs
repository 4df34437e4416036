//! What is printed once a service listens.

use serde_json::json;

use super::super::Common;
use super::super::output::{is_quiet, line};

/// Prints where the service listens, unless only errors are wanted.
pub(super) fn ready(common: &Common, name: &str, url: &str) {
    if common.json {
        line(&json!({"url": url, "pid": std::process::id()}).to_string());
    } else if !is_quiet() {
        line(&format!("{name} listens on {url}"));
    }
}
