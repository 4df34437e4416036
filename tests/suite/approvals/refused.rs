//! Decisions that must not count: on other arguments, on another run's call, too late, once more, by
//! whoever may not. That each is refused for exactly its reason is shown beside the rules
//! (`workflow::agent_tests::refusals_tests`).

use serde_json::{Value, json};

use super::{Desk, decide, decisions};
use crate::support::Client;

const POLICIES: [(&str, &str); 3] = [
    ("plain", "on_reject: recover"),
    (
        "brief",
        "on_reject: recover, timeout: 1ms, timeout_behavior: reject",
    ),
    ("other", "on_reject: recover, not_by_proposer: true"),
];

/// A decision is refused with this status and code.
async fn refused(client: &Client, run: &str, body: Value, status: u16, code: &str) {
    let answer = client.post(&decide(run), body.to_string()).await;
    assert_eq!(answer.status, status, "{body}: {}", answer.text());
    assert_eq!(answer.json()["code"], code, "{body}");
}

#[tokio::test]
async fn no_decision_counts_that_is_on_something_else_or_by_someone_who_may_not() {
    let desk = Desk::new(&POLICIES).await;
    let (run, record) = desk.waiting("plain", "one").await;
    let (_, other) = desk.waiting("plain", "two").await;
    let p1 = desk.who("p1");
    for decision in ["approved", "rejected"] {
        // What was seen is not what would be sent.
        let swapped = json!({"decision": decision, "digest": other["digest"]});
        refused(&p1, &run, swapped, 409, "approval_refused").await;
        // The call of another run.
        let foreign = json!({"decision": decision, "approval_id": other["approval_id"]});
        refused(&p1, &run, foreign, 404, "approval_not_found").await;
        let unknown = json!({"decision": decision, "approval_id": "apr_0000000000000000"});
        refused(&p1, &run, unknown, 404, "approval_not_found").await;
        // By whoever may do something else.
        for who in ["vera", "olga", "axel", "rita"] {
            let said = json!({"decision": decision});
            refused(&desk.who(who), &run, said, 403, "forbidden").await;
        }
        // By nobody, and by somebody who is not known.
        let said = json!({"decision": decision});
        let nobody = Client::of(&desk.lab.engine.url);
        refused(&nobody, &run, said.clone(), 401, "unauthorized").await;
        refused(&desk.who("nobody"), &run, said, 401, "unauthorized").await;
    }
    // It was not sent, so it cannot have happened.
    let happened = json!({"decision": "happened", "result": "it did"});
    refused(&p1, &run, happened, 409, "approval_refused").await;
    assert_eq!(decisions(&desk, &run).await, Vec::<Value>::new());
    assert_eq!(desk.server.asked(), []);
    // The same person, on this call and these arguments.
    let said = json!({"decision": "approved", "digest": record["digest"], "approval_id": record["approval_id"]});
    let taken = p1.post(&decide(&run), said.to_string()).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    assert_eq!(desk.who("olga").ended(&run).await["status"], "complete");
    // Once more, word for word; and otherwise.
    refused(&p1, &run, said, 409, "approval_already_decided").await;
    let against = json!({"decision": "rejected"});
    refused(&p1, &run, against, 409, "approval_already_decided").await;
    assert_eq!(decisions(&desk, &run).await.len(), 1);
    let asked = desk.server.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].arguments, json!({"what": "one"}));
}

#[tokio::test]
async fn no_decision_counts_after_the_time_is_over() {
    let desk = Desk::new(&POLICIES).await;
    let olga = desk.who("olga");
    let run = olga.invoke("brief", json!({"msg": "m"})).await;
    super::seen(&olga, &run, "approval.expired").await;
    for decision in ["approved", "rejected"] {
        let said = json!({"decision": decision});
        refused(&desk.who("p1"), &run, said, 409, "approval_expired").await;
    }
    olga.ended(&run).await;
    assert_eq!(decisions(&desk, &run).await.len(), 1);
    assert_eq!(desk.server.asked(), []);
}

#[tokio::test]
async fn whoever_started_a_run_does_not_approve_its_calls_where_the_policy_says_so() {
    let desk = Desk::new(&POLICIES).await;
    let both = desk.who("both");
    let run = both.invoke("other", json!({"msg": "m"})).await;
    super::seen(&both, &run, "approval.requested").await;
    let said = json!({"decision": "approved"});
    refused(&both, &run, said.clone(), 403, "approver_is_proposer").await;
    assert_eq!(decisions(&desk, &run).await, Vec::<Value>::new());
    let taken = desk.who("p1").post(&decide(&run), said.to_string()).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    both.ended(&run).await;
}
