//! Every status of `GET /diff` and `POST …/replay`, once.

use super::describe::Described;

/// Two runs of the lab, looked back at in every way, and in every wrong way.
pub(super) async fn all(api: &Described, run: &str) {
    let other = api.post("/invoke/whole?wait=60", "").await.json();
    let other = other["run_id"].as_str().unwrap();
    let same = api.get(&format!("/diff?a={other}&b={other}")).await;
    assert_eq!(same.status, 200);
    assert_eq!(same.json()["same"], true);
    let differs = api.get(&format!("/diff?a={run}&b={other}/inner")).await;
    assert_eq!(differs.status, 200);
    assert_eq!(differs.json()["same"], false);
    for query in ["", "?a=x", "?a=..%2fx&b=y", "?a=x&b=y&c=z"] {
        let answer = api.get(&format!("/diff{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        assert_eq!(answer.json()["code"], "invalid_query");
    }
    let prefix = run.get(..8).unwrap();
    let absent = api.get(&format!("/diff?a={run}&b=absent")).await;
    assert_eq!(absent.status, 404);
    let several = api.get(&format!("/diff?a={prefix}&b={run}")).await;
    assert_eq!(several.status, 409);
    let evil = [("origin", "https://evil.example")];
    let path = format!("/diff?a={run}&b={other}");
    assert_eq!(api.call("GET", &path, &evil, "").await.status, 403);

    let replay = format!("/runs/{other}/replay");
    for body in ["", "{}", r#"{"strict":false}"#, r#"{"strict":true}"#] {
        let answer = api.post(&replay, body).await;
        assert_eq!(answer.status, 200, "{body}");
        assert_eq!(answer.json()["verdict"], "ok", "{}", answer.text());
        assert_eq!(answer.json()["status"], "complete");
    }
    assert_eq!(api.post(&format!("{replay}?x=1"), "").await.status, 400);
    assert_eq!(api.call("POST", &replay, &evil, "").await.status, 403);
    assert_eq!(api.post("/runs/absent/replay", "").await.status, 404);
    let several = api.post(&format!("/runs/{prefix}/replay"), "").await;
    assert_eq!(several.status, 409);
    let large = " ".repeat(1024 * 1024 + 1);
    assert_eq!(api.post(&replay, &large).await.status, 413);
    for body in ["[]", r#"{"strict":1}"#, r#"{"live":true}"#] {
        assert_eq!(api.post(&replay, body).await.status, 422, "{body}");
    }
}
