//! A fallback between providers at their limits, in virtual time, with scripted providers.

use serde_json::json;

use super::tests::{ask, gateway, post};
use ktsu_peer::Peer;

/// A fallback from `s/first` to `t/second`, each provider with its limit; and one in a hurry.
fn pair(group: &str, limits: [&str; 2], rules: &str) -> Peer {
    let [first, second] = limits;
    let provider = |name: &str, limit: &str| {
        format!("  - {{name: {name}, type: scripted, {limit} config: {{rules: r.yaml}}}}\n")
    };
    let text = format!(
        "providers:\n{}{}model_groups:\n  - {{name: g, models: [s/first, t/second], strategy: fallback, {group}}}\n  \
         - {{name: hurried, models: [s/first, t/second], strategy: fallback, deadline: 1s}}\n",
        provider("s", first),
        provider("t", second)
    );
    gateway(&text, rules)
}

/// Who answered, and after how many seconds; of several calls at once, in the order of asking.
async fn answered(peer: &Peer, calls: usize) -> Vec<(String, u64)> {
    let start = tokio::time::Instant::now();
    let calls = (0..calls).map(|_| async {
        let (status, reply) = post(peer, None, ask("U")).await;
        let word = match status {
            200 => &reply["model_resolved"],
            _ => &reply["message"],
        };
        (word.as_str().unwrap().to_owned(), start.elapsed().as_secs())
    });
    futures_util::future::join_all(calls).await
}

fn told(answered: &[(String, u64)]) -> Vec<(&str, u64)> {
    let told = answered
        .iter()
        .map(|(who, seconds)| (who.as_str(), *seconds));
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn a_fallback_does_not_wait_at_a_door_while_another_is_open() {
    let one = "rate_limit: {concurrent: 1},";
    let rules = "rules: [{when: {model: first}, text: x, delay_ms: 60000}, {text: x}]";
    let peer = pair("", [one, ""], rules);
    let seen = answered(&peer, 3).await;
    let next = ("t/second", 0);
    assert_eq!(told(&seen), [("s/first", 60), next, next]);

    let minute = "rate_limit: {requests_per_minute: 1},";
    let peer = pair("deadline: 1h", [minute, ""], "rules: [{text: x}]");
    let seen = answered(&peer, 2).await;
    assert_eq!(told(&seen), [("s/first", 0), next]);
}

#[tokio::test(start_paused = true)]
async fn where_all_doors_are_shut_the_first_that_opens_is_taken() {
    let one = "rate_limit: {concurrent: 1},";
    let rules =
        "rules: [{when: {model: first}, text: x, delay_ms: 60000}, {text: x, delay_ms: 7000}]";
    let seen = answered(&pair("", [one, one], rules), 3).await;
    let wanted = [("s/first", 60), ("t/second", 7), ("t/second", 14)];
    assert_eq!(told(&seen), wanted);
    let rules =
        "rules: [{when: {model: first}, text: x, delay_ms: 7000}, {text: x, delay_ms: 60000}]";
    let seen = answered(&pair("", [one, one], rules), 3).await;
    let wanted = [("s/first", 7), ("t/second", 60), ("s/first", 14)];
    assert_eq!(told(&seen), wanted);
}

#[tokio::test(start_paused = true)]
async fn who_was_at_its_limit_is_waited_for_when_the_others_have_failed() {
    let one = "rate_limit: {concurrent: 1},";
    let rules = "rules: [{when: {model: first}, text: x, delay_ms: 60000}, {error: {status: 500}}]";
    let seen = answered(&pair("", [one, ""], rules), 2).await;
    assert_eq!(told(&seen), [("s/first", 60), ("s/first", 120)]);
    // Not where the request is at fault.
    let rules = "rules: [{when: {model: first}, text: x, delay_ms: 60000}, {error: {status: 400}}]";
    let seen = answered(&pair("", [one, ""], rules), 2).await;
    assert_eq!(told(&seen), [("s/first", 60), ("upstream returned 400", 0)]);
}

#[tokio::test(start_paused = true)]
async fn where_no_door_opens_in_time_each_is_named() {
    let one = "rate_limit: {concurrent: 1},";
    let peer = pair("", [one, one], "rules: [{text: x, delay_ms: 60000}]");
    let hurried = async {
        let start = tokio::time::Instant::now();
        let body = ask("U").replace("\"g\"", "\"hurried\"");
        let (status, refused) = post(&peer, None, body).await;
        let message = "no model of the group answered: \
            s/first: the rate_limit of s leaves no turn within 1000 ms; \
            t/second: the rate_limit of t leaves no turn within 1000 ms";
        let wanted = json!({"error": "no_models_available", "retryable": true, "message": message});
        assert_eq!((status, refused), (503, wanted));
        assert_eq!(start.elapsed().as_secs(), 1);
    };
    let (seen, ()) = tokio::join!(answered(&peer, 2), hurried);
    assert_eq!(told(&seen), [("s/first", 60), ("t/second", 60)]);
}

#[tokio::test(start_paused = true)]
async fn no_one_waits_for_turns_that_come_too_late_wherever_they_are() {
    let minute = "rate_limit: {requests_per_minute: 1},";
    let peer = pair("deadline: 1m", [minute, minute], "rules: [{text: x}]");
    let seen = answered(&peer, 7).await;
    let of = |word: &str| {
        let mut at: Vec<u64> = seen
            .iter()
            .filter(|(said, _)| said.contains(word))
            .map(|(_, seconds)| *seconds)
            .collect();
        at.sort_unstable();
        at
    };
    assert_eq!(of("leaves no turn"), [0, 0, 0, 0], "{seen:?}");
    assert_eq!([of("s/first: "), of("t/second: ")], [[0; 4]; 2]);
    let answered = told(&seen[..3]);
    assert_eq!(answered, [("s/first", 0), ("t/second", 0), ("s/first", 60)]);
}

#[tokio::test(start_paused = true)]
async fn models_of_one_provider_wait_in_its_line_once() {
    // A turn a minute, and each call that waits is counted once: the third is due at 120 s.
    let text = "providers: [{name: s, type: scripted, rate_limit: {requests_per_minute: 1}, config: {rules: r.yaml}}]
model_groups: [{name: g, models: [s/first, s/second], strategy: fallback, deadline: 2m}]";
    let seen = answered(&gateway(text, "rules: [{text: x}]"), 3).await;
    let wanted = [("s/first", 0), ("s/first", 60), ("s/first", 120)];
    assert_eq!(told(&seen), wanted);
}
