//! Dispatches, heartbeats, and the list of tasks.

use std::sync::Mutex;

use super::*;

/// What is logged at `warn` and above while the guard lives, by this thread.
fn warnings() -> (Arc<Mutex<Vec<u8>>>, tracing::subscriber::DefaultGuard) {
    struct Kept(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let kept = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&kept);
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(move || Kept(Arc::clone(&into)))
        .finish();
    (kept, tracing::subscriber::set_default(subscriber))
}

#[tokio::test]
async fn who_does_not_answer_is_logged_once_for_a_task_without_the_token() {
    let (kept, _guard) = warnings();
    let world = world([Say::Break, Say::Break, Say::Text("{}")]).await;
    for report_url in [true, false] {
        let breaks = [Fault::Break, Fault::Break];
        world
            .orchestrator
            .with(|recorded| recorded.faults.extend(breaks));
        let mut task = world.task();
        if !report_url {
            task.as_object_mut().unwrap().remove("report_url");
        }
        world.work(task).await;
        let logged = String::from_utf8(std::mem::take(&mut *kept.lock().unwrap())).unwrap();
        let about = |who: &str| logged.lines().filter(|line| line.contains(who)).count();
        assert_eq!(about("no response from the orchestrator"), 1, "{logged}");
        // Only the first task met a silent gateway.
        let silent = usize::from(report_url);
        assert_eq!(about("no response from the gateway"), silent, "{logged}");
        let steps = format!("{}/runs/run_1/steps/s/", world.url);
        assert_eq!(about(&steps), 1, "{logged}");
        assert!(!logged.contains("token"), "{logged}");
    }
}

#[tokio::test]
async fn an_attempt_is_worked_on_once_and_only_a_later_one_replaces_it() {
    let mut world = world([Say::Hang]).await;
    let task = world.task();
    assert_eq!(world.dispatch(&task).await.0, 202);
    assert_eq!(world.news().await, News::Asked);
    assert_eq!(world.dispatch(&task).await.0, 202);
    let mut later = task.clone();
    later["attempt"] = json!(2);
    assert_eq!(world.dispatch(&later).await.0, 202);
    let mut news = [world.news().await, world.news().await];
    news.sort_by_key(|one| *one == News::Asked);
    assert_eq!(news, [News::Dropped, News::Asked]);
    let (status, refused) = world.dispatch(&task).await;
    assert_eq!((status, &refused["error"]), (409, &json!("stale_attempt")));
    let attempts: Vec<u64> = world.orchestrator.with(|recorded| {
        let attempt =
            |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap()["attempt"].as_u64();
        recorded
            .came
            .iter()
            .filter_map(|(_, body)| attempt(body))
            .collect()
    });
    assert_eq!(attempts, [1, 2]);
    let active = world.runtime.0.tasks.active();
    assert_eq!((active.len(), active[0].attempt), (1, Some(2)));
}

#[tokio::test]
async fn a_heartbeat_names_the_tasks_and_its_answer_stops_some() {
    let mut world = world([Say::Hang]).await;
    world.dispatch(&world.task()).await;
    assert_eq!(world.news().await, News::Asked);
    let named = json!({"run_id": "run_1", "step_id": "s", "attempt": 1});
    let mut other = named.clone();
    other["attempt"] = json!(7);
    for (stop, left) in [(vec![other], 1), (vec![named.clone()], 0)] {
        world.orchestrator.with(|recorded| recorded.stop = stop);
        heartbeat::once(&world.runtime.0).await;
        let (path, beat) = loop {
            let heard = soon(world.heard.recv()).await.unwrap();
            if heard.0 == "/heartbeat" {
                break heard;
            }
        };
        assert_eq!(path, "/heartbeat");
        assert_eq!(
            beat,
            json!({"runtime_id": world.runtime.id(), "active": [named]})
        );
        assert_eq!(world.runtime.0.tasks.active().len(), left);
    }
    assert_eq!(world.news().await, News::Dropped);
    assert_eq!(
        world.orchestrator.types(),
        ["llm.request"],
        "it stops without a word"
    );
}

#[tokio::test]
async fn it_beats_at_once_and_until_it_is_asked_to_stop() {
    let mut world = world([Say::Hang]).await;
    let (told, stop) = tokio::sync::oneshot::channel::<()>();
    let runtime = world.runtime.clone();
    let beating = tokio::spawn(async move {
        runtime.beat(async { drop(stop.await) }).await;
    });
    let (path, beat) = soon(world.heard.recv()).await.unwrap();
    assert_eq!((path.as_str(), &beat["active"]), ("/heartbeat", &json!([])));
    drop(told);
    soon(beating).await.unwrap();
}

#[tokio::test]
async fn a_stopped_runtime_drops_its_tasks_and_takes_no_more() {
    let mut world = world([Say::Hang]).await;
    world.dispatch(&world.task()).await;
    assert_eq!(world.news().await, News::Asked);
    world.runtime.stop();
    assert_eq!(world.news().await, News::Dropped);
    assert_eq!(world.dispatch(&world.task()).await.0, 503);
    assert_eq!(world.runtime.0.tasks.active(), []);
}

#[tokio::test]
async fn what_is_no_task_is_refused() {
    let world = local([Say::Hang]);
    let peer = &world.service;
    let whole = world.task();
    let mut bodies = vec!["{".to_owned(), "[]".to_owned(), "{}".to_owned()];
    for name in ["run_id", "step_id", "callback_url", "model"] {
        let mut task = whole.clone();
        task.as_object_mut().unwrap().remove(name);
        bodies.push(task.to_string());
        task[name] = json!("a\nb");
        bodies.push(task.to_string());
    }
    let mut task = whole.clone();
    task["report_url"] = json!("ftp://h/p?token=t0ken");
    bodies.push(task.to_string());
    for body in bodies {
        let (status, answer) = peer
            .post("/invoke", &[], Bytes::from(body.clone()))
            .await
            .unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            (status, &answer["error"]),
            (400, &json!("invalid_request")),
            "{body}"
        );
        assert_eq!(answer["retryable"], false);
        assert!(!answer.to_string().contains("t0ken"), "{answer}");
    }
    let huge = Bytes::from(vec![b' '; 64 * 1024 * 1024 + 1]);
    assert_eq!(peer.post("/invoke", &[], huge).await.unwrap().0, 413);
    assert_eq!(world.runtime.0.tasks.active(), []);
}

#[tokio::test]
async fn what_is_wrong_with_a_task_is_said_with_its_place_in_words_of_our_own() {
    let world = local([Say::Hang]);
    let changed = |name: &str, value: Value| {
        let mut task = world.task();
        task[name] = value;
        task.to_string()
    };
    for (body, words) in [
        (
            "{".to_owned(),
            "the body is not JSON: the text ends within an object at line 1 column 1",
        ),
        (
            "{} {}".to_owned(),
            "the body is not JSON: there is more text after the value at line 1 column 4",
        ),
        (
            changed("max_turns", json!("x")),
            "/max_turns: expected integer, got string",
        ),
        (
            changed("model", json!(5)),
            "/model: expected object, got integer",
        ),
    ] {
        let sent = Bytes::from(body.clone());
        let (status, answer) = world.service.post("/invoke", &[], sent).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            (status, answer["message"].as_str()),
            (400, Some(words)),
            "{body}"
        );
    }
}

#[tokio::test]
async fn it_says_that_it_is_alive_and_what_it_offers() {
    let world = local([Say::Hang]);
    let peer = &world.service;
    let read = async |path: &str| {
        let request = axum::http::Request::get(path).body(axum::body::Body::empty());
        let (status, body) = peer.call_and_read(request.unwrap()).await.unwrap();
        (status, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let health = json!({"status": "ok", "runtime_id": world.runtime.id()});
    assert_eq!(read("/health").await, (200, health));
    let (status, api) = read("/openapi.json").await;
    assert_eq!(status, 200);
    assert_eq!(api, serde_json::to_value(openapi()).unwrap());
    assert!(api["paths"]["/invoke"]["post"]["responses"]["202"].is_object());
}

#[tokio::test]
async fn a_thousand_tasks_at_once_all_end() {
    for mut world in [local([Say::Text("{}")]), world([Say::Text("{}")]).await] {
        for index in 0..1000 {
            let mut task = world.task();
            task["step_id"] = json!(format!("s.{index}"));
            // One orchestrator of a test tells reports apart by attempt and number alone.
            task["attempt"] = json!(index + 1);
            assert_eq!(world.dispatch(&task).await.0, 202);
        }
        for _ in 0..1000 {
            world.heard("agent.finished").await;
        }
        assert_eq!(world.gateway.asked().len(), 1000);
    }
}
