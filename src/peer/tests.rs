use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::Request as Asked;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Answers every request on every connection, and counts the connections.
async fn counting() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut seen = [0; 4096];
                while stream.read(&mut seen).await.is_ok_and(|read| read > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    stream.write_all(answer).await.unwrap();
                }
            });
        }
    });
    (url, count)
}

fn echo() -> Router {
    let echo = async |asked: Asked| {
        let told = |name: &str| {
            let value = asked.headers().get(name);
            value
                .map_or("-", |value| value.to_str().unwrap())
                .to_owned()
        };
        let uri = asked.uri().to_string();
        format!(
            "{uri} {} {} {} {}",
            told("host"),
            told("ktsu-token"),
            told("authorization"),
            told("x-a")
        )
    };
    Router::new().route("/echo", post(echo)).route(
        "/never",
        get(std::future::pending::<()>).post(std::future::pending::<()>),
    )
}

async fn served(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

#[tokio::test]
async fn calls_one_after_another_use_one_connection() {
    let (url, count) = counting().await;
    let peer = Peer::remote(url, None);
    for _ in 0..5 {
        let answer = peer.clone().post("/", &[], Bytes::from("{}")).await;
        assert_eq!(answer.unwrap(), (200, b"ok".to_vec()));
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_request_says_who_asks_and_whom_and_keeps_what_it_shows_the_workflow() {
    let url = served(echo()).await;
    let peer = Peer::remote(&*url, Some("t0ken".to_owned()));
    let shown = [("x-a", "1"), ("authorization", "Bearer mine")];
    let (status, body) = peer.post("/echo?a=b", &shown, Bytes::new()).await.unwrap();
    let host = url.trim_start_matches("http://");
    assert_eq!(status, 200);
    assert_eq!(
        String::from_utf8(body).unwrap(),
        format!("/echo?a=b {host} t0ken Bearer mine 1")
    );
}

#[tokio::test]
async fn a_peer_that_takes_too_long_is_silent_here_and_elsewhere() {
    let url = served(echo()).await;
    for peer in [Peer::Local(echo()), Peer::remote(url, None)] {
        let limit = Duration::from_millis(20);
        let answer = peer
            .post_with_timeout(limit, "/never", &[], Bytes::new())
            .await;
        let error = answer.unwrap_err().to_string();
        assert!(error.ends_with("no answer within 20 ms"), "{error}");
    }
}

#[tokio::test]
async fn no_one_at_the_port_is_reported_in_the_systems_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = Peer::remote(&*url, None).get("/", "*/*").await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with(&format!("{url} does not answer: ")),
        "{error}"
    );
    assert!(error.to_lowercase().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_service_that_ends_the_connection_is_reported_in_our_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // The end of a stream that was read is no reset.
        let mut head = [0; 1024];
        tokio::io::AsyncReadExt::read(&mut stream, &mut head).await
    });
    let error = Peer::remote(&*url, None).get("/", "*/*").await.unwrap_err();
    let said = format!("{url} does not answer: the connection ended before an answer");
    assert_eq!(error.to_string(), said);
}

#[tokio::test]
async fn only_http_is_spoken() {
    for url in [
        "ftp://127.0.0.1:1",
        "127.0.0.1:1",
        "",
        "http://",
        "file:///etc",
    ] {
        let error = Peer::remote(url, None).get("/", "*/*").await.unwrap_err();
        assert!(matches!(error, PeerError::InvalidUrl(_)), "{url}: {error}");
    }
}

#[test]
fn a_url_is_split_and_an_error_keeps_its_query_to_itself() {
    let (origin, path) = split("http://localhost:5050/runs/r%2Fc/steps/s/report?token=t").unwrap();
    assert_eq!(origin, "http://localhost:5050");
    assert_eq!(path, "/runs/r%2Fc/steps/s/report?token=t");
    assert_eq!(
        split("http://h").unwrap(),
        ("http://h:80".to_owned(), "/".to_owned())
    );
    let encrypted = split("https://h/p").unwrap();
    assert_eq!(encrypted, ("https://h:443".to_owned(), "/p".to_owned()));
    let error = split("ftp://h/p?token=t0ken").unwrap_err().to_string();
    assert!(!error.contains("t0ken"), "{error}");
}

/// A service that answers without an end takes no more memory than an answer may have.
#[tokio::test]
async fn an_answer_without_an_end_is_no_answer() {
    let endless = async || {
        let pieces = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![0; 65_536]));
        Body::from_stream(pieces)
    };
    let url = served(Router::new().route("/", post(endless))).await;
    let answer = Peer::remote(&*url, None).post("/", &[], Bytes::new()).await;
    let error = answer.unwrap_err().to_string();
    assert!(
        error.ends_with("its answer has more than 16777216 bytes"),
        "{error}"
    );
}

#[test]
fn a_url_with_a_user_or_without_a_port_that_is_one_is_refused() {
    for url in [
        "http://u:p@h:1",
        "http://h:99999",
        "http://h:x",
        "http://",
        "h:1",
    ] {
        assert!(split(url).is_err(), "{url}");
    }
    assert_eq!(split("http://[::1]:5050/x").unwrap().0, "http://[::1]:5050");
}
