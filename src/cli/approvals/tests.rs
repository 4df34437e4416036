use ktsu_projections::person_requests::PersonRequest;
use serde_json::json;

use super::matches_id;

fn record(run: &str) -> PersonRequest {
    let record = json!({"approval_id": "apr_6fb4215a6b899209", "kind": "approval", "run_id": run,
        "step_id": "s", "server": "d", "tool_name": "t", "tool_use_id": "", "arguments": {},
        "digest": "", "on_reject": "fail", "timeout_ms": 0, "quorum": 1, "not_by_proposer": false,
        "status": "pending", "created_at": "2026-01-01T00:00:00.000000Z", "proposer": "p",
        "request": 7});
    serde_json::from_value(record).unwrap()
}

#[test]
fn a_text_means_what_its_id_begins_or_ends_with_and_nothing_that_all_ids_have() {
    let own = record("run_01a200b0d2c3728d");
    for asked in [
        "apr_6fb4215a6b899209",
        "apr_6fb",
        "6fb",
        "209",
        "run_01a2",
        "01a2",
        "28d",
    ] {
        assert!(matches_id(asked, &own), "{asked}");
    }
    for asked in [
        "run",
        "apr",
        "un_",
        "pr_6fb",
        "apr_209",
        "apr_01a",
        "run_6fb",
        "run_28d",
        "run_01a2/call",
        "branch_01a2",
        "call",
    ] {
        assert!(!matches_id(asked, &own), "{asked}");
    }
    let child = record("branch_01a200b0d2c3728d/call/inner");
    for asked in ["01a2", "branch_01a2", "01a2/call/inner", "6fb"] {
        assert!(matches_id(asked, &child), "{asked}");
    }
    for asked in [
        "01a2/call",
        "inner",
        "call/inner",
        "run_01a2",
        "bra",
        "branch",
    ] {
        assert!(!matches_id(asked, &child), "{asked}");
    }
}
