//! Clients that misbehave, over real sockets.

use axum::routing::post;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

mod slow_tests;

use super::*;
use crate::body::JsonObject;

/// Far more than any of these takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

struct Served {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

/// A server whose `POST /echo` answers with its body, and whose `POST /panic` panics.
async fn served(limits: ServerLimits) -> Served {
    let router = Router::new()
        .route(
            "/echo",
            post(async |JsonObject(body): JsonObject| axum::Json(body)),
        )
        .route("/panic", post(async || -> () { panic!("a secret") }));
    serve_router(router, limits).await
}

async fn serve_router(router: Router, limits: ServerLimits) -> Served {
    let listener = bind_loopback(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel();
    let shutdown = async move {
        let _ = stopped.await;
    };
    let server = tokio::spawn(serve(listener, guarded(router), limits, shutdown));
    Served {
        address,
        stop,
        server,
    }
}

fn limits() -> ServerLimits {
    ServerLimits {
        grace: Duration::from_millis(200),
        ..ServerLimits::default()
    }
}

impl Served {
    async fn open(&self) -> TcpStream {
        TcpStream::connect(self.address)
            .await
            .expect("a connection")
    }

    /// Sends some bytes and reads until the server closes.
    async fn ask(&self, bytes: &[u8]) -> String {
        let mut stream = self.open().await;
        stream.write_all(bytes).await.expect("sent");
        rest(&mut stream).await
    }
}

/// What the server says until it closes; a reset counts as closed.
async fn rest(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let reading = stream.read_to_end(&mut said);
    let _ = tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the server closes");
    String::from_utf8_lossy(&said).into_owned()
}

fn post_request(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[tokio::test]
async fn a_body_comes_back_and_every_answer_forbids_caching_and_guessing() {
    let served = served(limits()).await;
    let answer = served.ask(&post_request("/echo", r#"{"a":1}"#)).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.ends_with(r#"{"a":1}"#), "{answer}");
    for path in ["/echo", "/nowhere", "/panic"] {
        let answer = served.ask(&post_request(path, "")).await;
        assert!(answer.contains("cache-control: no-store\r\n"), "{answer}");
        assert!(
            answer.contains("x-content-type-options: nosniff\r\n"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_problems() {
    let served = served(limits()).await;
    let answer = served.ask(&post_request("/x%3Cscript%3E", "")).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    assert!(answer.contains("application/problem+json"), "{answer}");
    assert!(!answer.contains("script"), "{answer}");
    let answer = served
        .ask(b"GET /echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    assert!(answer.contains("allow: POST\r\n"), "{answer}");
    assert!(answer.contains("method_not_allowed"), "{answer}");
}

#[tokio::test]
async fn a_page_of_another_site_reaches_no_handler() {
    let served = served(limits()).await;
    for head in [
        "host: evil.example",
        "host: localhost\r\norigin: https://evil.example",
        "host: localhost\r\nsec-fetch-site: cross-site",
    ] {
        for path in ["/echo", "/panic", "/nowhere"] {
            let request = format!(
                "POST {path} HTTP/1.1\r\n{head}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
            );
            let answer = served.ask(request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
            assert!(answer.contains("foreign_origin"), "{answer}");
            assert!(answer.contains("cache-control: no-store\r\n"), "{answer}");
            assert!(!answer.contains("evil"), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_panic_is_a_500_that_says_nothing_and_the_server_continues() {
    let served = served(limits()).await;
    let answer = served.ask(&post_request("/panic", "")).await;
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    assert!(!answer.contains("secret"), "{answer}");
    let answer = served.ask(&post_request("/echo", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn sixty_megabytes_are_refused_before_they_are_read() {
    let served = served(limits()).await;
    let head = b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 62914560\r\n\r\n";
    // Not one byte of the body is sent, and the answer is there all the same.
    let answer = served.ask(head).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("body_too_large"), "{answer}");
}

#[tokio::test]
async fn a_chunked_body_without_an_end_is_cut_off_at_the_limit() {
    let served = served(limits()).await;
    let mut stream = served.open().await;
    let head = b"POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head).await.expect("sent");
    let mut sent = 0;
    let chunk = [b"10000\r\n", " ".repeat(0x10000).as_bytes(), b"\r\n"].concat();
    while sent < 60 << 20 && stream.write_all(&chunk).await.is_ok() {
        sent += chunk.len();
    }
    assert!(sent < 60 << 20, "the server read {sent} bytes");
}

#[tokio::test]
async fn half_sent_headers_are_closed_after_their_time() {
    let time = Duration::from_millis(50);
    let served = served(ServerLimits {
        header_time: time,
        ..limits()
    })
    .await;
    for start in [
        "",
        "P",
        "POST /echo HTTP/1.1\r\nhost: localhost\r\n",
        "POST /echo HTTP/1.1\r\nx: ",
    ] {
        let answer = served.ask(start.as_bytes()).await;
        assert!(!answer.contains("200 OK"), "{answer}");
    }
}

#[tokio::test]
async fn a_stalled_body_is_answered_and_closed_after_its_time() {
    let time = Duration::from_millis(50);
    let served = served(ServerLimits {
        body_time: time,
        ..limits()
    })
    .await;
    let half = b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{\"a\"";
    let answer = served.ask(half).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test]
async fn headers_over_the_limit_and_garbage_are_refused() {
    let served = served(limits()).await;
    let long = format!(
        "GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
        "a".repeat(40_000)
    );
    let answer = served.ask(long.as_bytes()).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    for garbage in [
        "\0\u{1}\u{2}\r\n\r\n",
        "\u{16}\u{3}\u{1}\r\n\r\n",
        "GET\r\n\r\n",
        "POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let answer = served.ask(garbage.as_bytes()).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
            "{garbage:?} {answer}"
        );
    }
}

#[tokio::test]
async fn beyond_the_cap_a_connection_is_answered_503() {
    let (entered, mut has_entered) = tokio::sync::mpsc::unbounded_channel();
    let forever = async move || {
        let _ = entered.send(());
        std::future::pending::<()>().await;
    };
    let limits = ServerLimits {
        connections: 1,
        place_time: Duration::from_millis(50),
        ..limits()
    };
    let served = serve_router(Router::new().route("/", post(forever)), limits).await;
    let mut first = served.open().await;
    first.write_all(&post_request("/", "")).await.expect("sent");
    has_entered.recv().await.expect("its request is under way");
    let answer = served.ask(&post_request("/", "")).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("overloaded"), "{answer}");
}

#[tokio::test]
async fn shutdown_lets_a_request_finish_and_closes_idle_connections() {
    let (entered, has_entered) = oneshot::channel();
    let (release, released) = oneshot::channel::<()>();
    let gates = std::sync::Mutex::new(Some((entered, released)));
    let gates = Arc::new(gates);
    let slow = async move || {
        let taken = gates.lock().ok().and_then(|mut gates| gates.take());
        if let Some((entered, released)) = taken {
            let _ = entered.send(());
            let _ = released.await;
        }
        "done"
    };
    let router = Router::new().route("/slow", post(slow));
    let limits = ServerLimits {
        grace: PATIENCE,
        ..limits()
    };
    let served = serve_router(router, limits).await;
    let mut idle = served.open().await;
    let mut busy = served.open().await;
    let request = b"POST /slow HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    busy.write_all(request).await.expect("sent");
    has_entered.await.expect("the handler runs");
    served.stop.send(()).expect("the server runs");
    assert_eq!(rest(&mut idle).await, "");
    release.send(()).expect("the handler waits");
    assert!(rest(&mut busy).await.ends_with("done"));
    served.server.await.expect("the server ends");
}

#[tokio::test]
async fn after_the_grace_period_what_is_left_is_cut() {
    let (entered, has_entered) = oneshot::channel::<()>();
    let entered = Arc::new(std::sync::Mutex::new(Some(entered)));
    let forever = async move || {
        drop(entered.lock().ok().and_then(|mut entered| entered.take()));
        std::future::pending::<()>().await;
    };
    let served = serve_router(Router::new().route("/", post(forever)), limits()).await;
    let mut stream = served.open().await;
    stream
        .write_all(&post_request("/", ""))
        .await
        .expect("sent");
    let _ = has_entered.await;
    served.stop.send(()).expect("the server runs");
    let ended = tokio::time::timeout(PATIENCE, served.server).await;
    ended.expect("the server ends").expect("without a panic");
    assert_eq!(rest(&mut stream).await, "");
}

#[tokio::test]
async fn only_loopback_addresses_are_listened_on() {
    for address in [
        "0.0.0.0:0",
        "192.168.1.4:0",
        "[::]:0",
        "[::ffff:127.0.0.1]:0",
    ] {
        let refused = bind_loopback(address.parse().expect("an address")).await;
        assert!(
            matches!(refused, Err(BindError::NotLoopback(_))),
            "{address}"
        );
    }
    assert!(
        bind_loopback(SocketAddr::from(([127, 0, 0, 1], 0)))
            .await
            .is_ok()
    );
}
