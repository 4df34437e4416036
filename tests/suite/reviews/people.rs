//! Who may see a review, and who may decide on it.

use ktsu::assemble::LedgerPlace;
use serde_json::json;

use super::{approve, asked, decide, is, kit, review, seen};
use crate::support::{Client, Lab};

const ROLES: [&str; 6] = [
    "viewer", "operator", "approver", "auditor", "admin", "runtime",
];

/// A principal of each role, named after it, and some who have more than one.
fn environment() -> String {
    let mut variables = String::new();
    let mut principals = String::new();
    let both = ("both", "operator, approver");
    let people = ROLES.map(|role| (role, role)).into_iter();
    for (name, roles) in people.chain([both, ("second", "approver")]) {
        variables.push_str(&format!("  T_{name}: token-of-{name}\n"));
        principals.push_str(&format!(
            "  - {{name: {name}, token: {{env: T_{name}}}, roles: [{roles}]}}\n"
        ));
    }
    format!("variables:\n{variables}principals:\n{principals}")
}

async fn lab(policy: &str) -> Lab {
    let place = LedgerPlace::Memory;
    Lab::in_environment(place, &kit(policy), &environment(), &[]).await
}

fn who(lab: &Lab, name: &str) -> Client {
    Client::showing(&lab.engine.url, &format!("token-of-{name}"))
}

#[tokio::test]
async fn the_roles_of_a_policy_decide_who_may_decide_and_readers_only_see() {
    for (policy, may) in [
        ("true", ["approver", "admin"].as_slice()),
        ("{roles: [operator]}", &["operator", "admin"]),
        ("{roles: [approver]}", &["approver", "admin"]),
    ] {
        let lab = lab(policy).await;
        let run = asked(&who(&lab, "admin"), "judged").await;
        let path = format!("/runs/{run}/steps/a/review");
        let decide_path = format!("{path}/decide");
        let body = json!({"decision": "approved"}).to_string();
        is(&lab.client.get(&path).await, 401, "unauthorized");
        let unknown = lab.client.post(&decide_path, body.clone()).await;
        is(&unknown, 401, "unauthorized");
        for role in ROLES {
            let client = who(&lab, role);
            let shown = client.get(&path).await;
            if role == "runtime" {
                is(&shown, 403, "forbidden");
            } else {
                assert_eq!(shown.status, 200, "{role}: {}", shown.text());
            }
            if may.contains(&role) {
                continue;
            }
            // Whatever is sent, the answer says no more than that.
            for body in [
                body.as_str(),
                "not json",
                "{}",
                r#"{"decision": "perhaps"}"#,
                r#"{"decision": "approved", "review_id": "rev_0"}"#,
            ] {
                let refused = client.post(&decide_path, body.to_owned()).await;
                is(&refused, 403, "forbidden");
                assert!(refused.json()["review"].is_null(), "{}", refused.text());
            }
        }
        for role in may {
            let client = who(&lab, role);
            let run = asked(&who(&lab, "admin"), "judged").await;
            let decided = approve(&client, &run).await;
            assert_eq!(decided.status, 200, "{role}: {}", decided.text());
            let vote = &decided.json()["votes"][0];
            assert_eq!(
                (&vote["by"], &vote["auth"]),
                (&json!(role), &json!("token"))
            );
            // Decided, it is closed to the others as before.
            let other = if may.contains(&"operator") {
                "approver"
            } else {
                "operator"
            };
            let refused = approve(&who(&lab, other), &run).await;
            is(&refused, 403, "forbidden");
            is(&approve(&client, &run).await, 409, "review_already_decided");
        }
        lab.close().await;
    }
}

#[tokio::test]
async fn a_quorum_counts_each_person_once_and_not_the_one_who_started_the_run() {
    let lab = lab("{quorum: 2, not_by_proposer: true}").await;
    let both = who(&lab, "both");
    let run = asked(&both, "judged").await;
    is(&approve(&both, &run).await, 403, "approver_is_proposer");
    let body = json!({"decision": "approved", "overlay": {"verdict": "bad"}});
    let first = decide(&who(&lab, "approver"), &run, body).await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert_eq!(first.json()["status"], "pending");
    let again = approve(&who(&lab, "approver"), &run).await;
    is(&again, 409, "review_refused");
    assert_eq!(
        review(&both, &run).await["votes"].as_array().unwrap().len(),
        1
    );
    let second = approve(&who(&lab, "second"), &run).await.json();
    assert_eq!(second["status"], "approved", "{second:#}");
    let envelope = both.ended(&run).await;
    assert_eq!(envelope["output"]["verdict"], "bad", "{envelope:#}");
    let record = review(&both, &run).await;
    assert_eq!(record["votes"][0]["overlay"], json!({"verdict": "bad"}));
    assert_eq!(record["votes"][1].get("overlay"), None, "{record:#}");
    let all = both.get("/approvals?status=all").await.json();
    assert_eq!(all[0]["votes"], record["votes"], "{all:#}");
    // One rejection is enough.
    let run = asked(&both, "judged").await;
    let rejected = decide(&who(&lab, "second"), &run, json!({"decision": "rejected"})).await;
    assert_eq!(rejected.json()["status"], "rejected", "{}", rejected.text());
    assert_eq!(both.ended(&run).await["status"], "failed");
    lab.close().await;
}

#[tokio::test]
async fn a_vote_that_sets_a_field_otherwise_than_an_earlier_one_is_refused_with_who_set_what() {
    let lab = lab("{quorum: 2}").await;
    let admin = who(&lab, "admin");
    let run = asked(&admin, "judged").await;
    let with = |verdict: &str| json!({"decision": "approved", "overlay": {"verdict": verdict}});
    let first = decide(&who(&lab, "approver"), &run, with("bad")).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let frames = admin.frames(&run).await.len();
    let second = who(&lab, "second");
    let refused = decide(&second, &run, with("good")).await;
    is(&refused, 409, "review_refused");
    let problem = refused.json();
    let words = "the field \"verdict\" is already replaced otherwise: \
                 approver approved with verdict = \"bad\"";
    assert_eq!(problem["message"], words, "{problem:#}");
    let hint = problem["hint"].as_str().unwrap();
    assert!(hint.contains("leave the field out"), "{hint}");
    assert_eq!(admin.frames(&run).await.len(), frames);
    let agreed = decide(&second, &run, with("bad")).await;
    assert_eq!(agreed.json()["status"], "approved", "{}", agreed.text());
    let envelope = admin.ended(&run).await;
    assert_eq!(envelope["output"]["verdict"], "bad", "{envelope:#}");
    lab.close().await;
}

#[tokio::test]
async fn what_a_vote_replaced_before_a_branch_asked_again_is_no_part_of_the_branch() {
    let lab = lab("{quorum: 2}").await;
    let admin = who(&lab, "admin");
    let run = asked(&admin, "judged").await;
    let vote = json!({"decision": "approved", "overlay": {"verdict": "bad"}});
    let first = decide(&who(&lab, "approver"), &run, vote).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let at = admin.frames(&run).await.len();
    let fork = json!({"at": at, "go": true}).to_string();
    let forked = admin.post(&format!("/runs/{run}/fork"), fork).await;
    assert_eq!(forked.status, 201, "{}", forked.text());
    let branch = forked.json()["branch_id"].as_str().unwrap().to_owned();
    seen(&admin, &branch, "review.requested", 2).await;
    assert_eq!(review(&admin, &branch).await.get("votes"), None);
    for name in ["approver", "second"] {
        let voted = approve(&who(&lab, name), &branch).await;
        assert_eq!(voted.status, 200, "{}", voted.text());
    }
    let envelope = admin.ended(&branch).await;
    assert_eq!(envelope["output"]["verdict"], "good", "{envelope:#}");
    let path = format!("/runs/{branch}/trace?of=step.a.verdict");
    let origin = admin.get(&path).await.json();
    assert!(!origin.to_string().contains("overlay"), "{origin:#}");
    lab.close().await;
}
