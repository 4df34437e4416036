//! Receivers that misbehave, over real sockets.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;

/// Far more than any of these takes.
const PATIENCE: Duration = Duration::from_secs(20);

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// Reads one request with a body of known length; `None` at the end of the connection.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    loop {
        let said = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = said.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return Some(said);
            }
        }
        if stream.read_buf(&mut text).await.ok()? == 0 {
            return None;
        }
    }
}

/// A receiver that answers everything with `answer`; the requests it saw come out of the channel.
async fn answering(answer: Vec<u8>) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (listener, address) = listener().await;
    let (seen, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (answer, seen) = (answer.clone(), seen.clone());
            tokio::spawn(async move {
                while let Some(request) = read_request(&mut stream).await {
                    let _ = seen.send(request);
                    let _ = stream.write_all(&answer).await;
                }
            });
        }
    });
    (address, requests)
}

fn ok(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn local() -> Client {
    Client::new(&EgressPolicy {
        allow: Vec::new(),
        loopback: true,
    })
    .expect("a policy")
}

fn request(url: &str) -> EgressRequest {
    EgressRequest {
        method: Method::POST,
        url: url.to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{\"a\":1}"),
        timeout: PATIENCE,
        keep: MAX_KEPT_BYTES,
        is_to_itself: false,
    }
}

async fn send(client: &Client, url: &str) -> Result<EgressResponse, EgressError> {
    client.send(request(url)).await
}

fn code(answer: &Result<EgressResponse, EgressError>) -> Option<EgressErrorCode> {
    answer.as_ref().err().map(|failure| failure.code)
}

#[tokio::test]
async fn a_request_arrives_as_it_was_given() {
    let (address, mut seen) = answering(ok("fine")).await;
    let mut request = request(&format!("http://{address}/hook?x=1#part"));
    let id = "webhook-id".parse::<http::HeaderName>().expect("a name");
    request
        .headers
        .insert(id, "dlv_1".parse().expect("a value"));
    let answer = local().send(request).await.expect("an answer");
    assert_eq!((answer.status, answer.truncated), (200, false));
    assert_eq!(answer.body, b"fine");
    let said = seen.recv().await.expect("a request");
    assert!(said.starts_with("POST /hook?x=1 HTTP/1.1\r\n"), "{said}");
    assert!(said.contains("webhook-id: dlv_1\r\n"), "{said}");
    let agent = format!("user-agent: ktsu/{}\r\n", env!("CARGO_PKG_VERSION"));
    assert!(said.contains(&agent), "{said}");
    assert!(said.ends_with("{\"a\":1}"), "{said}");
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let (goal, mut reached) = answering(ok("reached")).await;
    for status in [301, 302, 303, 307, 308] {
        let head = format!("HTTP/1.1 {status} X\r\nlocation: http://{goal}/\r\n");
        let (address, _seen) = answering(format!("{head}content-length: 0\r\n\r\n").into()).await;
        let answer = send(&local(), &format!("http://{address}/")).await;
        assert_eq!(answer.map(|answer| answer.status), Ok(status));
    }
    assert!(reached.try_recv().is_err());
}

#[tokio::test]
async fn a_receiver_that_says_nothing_is_a_timeout() {
    let (listener, address) = listener().await;
    let mut request = request(&format!("http://{address}/"));
    request.timeout = Duration::from_millis(50);
    let answer = local().send(request).await;
    assert_eq!(code(&answer), Some(EgressErrorCode::Timeout));
    let message = answer.map_err(|failure| failure.message);
    assert_eq!(
        message,
        Err(format!("no answer from {address} within 50 ms"))
    );
    drop(listener);
}

#[tokio::test]
async fn a_status_is_an_answer_even_if_its_body_hangs_or_breaks_off() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart".to_vec();
    let (address, _seen) = answering(head.clone()).await;
    let mut slow = request(&format!("http://{address}/"));
    slow.timeout = Duration::from_millis(200);
    let answer = local().send(slow).await.expect("an answer");
    assert_eq!((answer.status, answer.truncated), (200, true));
    assert!(answer.timed_out, "it hung");
    assert_eq!(answer.body, b"part");

    let (listener, address) = listener().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        read_request(&mut stream).await;
        stream.write_all(&head).await.expect("sent");
    });
    let answer = send(&local(), &format!("http://{address}/"))
        .await
        .expect("an answer");
    assert_eq!((answer.status, answer.truncated), (200, true));
    assert!(!answer.timed_out, "it broke off");
}

#[tokio::test]
async fn no_listener_a_reset_and_garbage_are_unreachable() {
    let (gone, address) = listener().await;
    drop(gone);
    let answer = send(&local(), &format!("http://{address}/")).await;
    assert_eq!(code(&answer), Some(EgressErrorCode::Unreachable));

    for said in [
        &b""[..],
        b"HTTP/1.1 20",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\n\0: \r\n\r\n",
    ] {
        let (listener, address) = listener().await;
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                read_request(&mut stream).await;
                let _ = stream.write_all(said).await;
            }
        });
        let answer = send(&local(), &format!("http://{address}/")).await;
        assert_eq!(
            code(&answer),
            Some(EgressErrorCode::Unreachable),
            "{said:?}"
        );
        assert_eq!(attempts.load(Ordering::SeqCst), 1, "sent once");
    }
}

#[tokio::test]
async fn tls_to_a_receiver_without_it_is_unreachable_and_says_no_more_than_the_host() {
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let _ = stream.read(&mut [0; 16]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    });
    let answer = send(
        &local(),
        &format!("https://u:secret@{address}/path?key=secret"),
    )
    .await;
    assert_eq!(code(&answer), Some(EgressErrorCode::Unreachable));
    let message = answer
        .map_err(|failure| failure.message)
        .err()
        .unwrap_or_default();
    assert!(!message.contains("secret"), "{message}");
}

#[tokio::test]
async fn as_much_of_a_body_is_read_as_was_asked_for() {
    for (keep, body, truncated) in [(0, "", true), (3, "012", true), (5, "01234", false)] {
        let (address, _seen) = answering(ok("01234")).await;
        let mut request = request(&format!("http://{address}/"));
        request.keep = keep;
        let answer = local().send(request).await.expect("an answer");
        assert_eq!(
            (answer.body.as_slice(), answer.truncated),
            (body.as_bytes(), truncated)
        );
    }
}

#[tokio::test]
async fn only_the_beginning_of_a_long_body_is_kept() {
    for (length, truncated) in [
        (MAX_KEPT_BYTES, false),
        (MAX_KEPT_BYTES + 1, true),
        (8 << 20, true),
    ] {
        let (address, _seen) = answering(ok(&"x".repeat(length))).await;
        let answer = send(&local(), &format!("http://{address}/"))
            .await
            .expect("an answer");
        assert_eq!(
            (answer.body.len(), answer.truncated),
            (MAX_KEPT_BYTES, truncated),
            "{length}"
        );
    }
    let mut endless = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    endless.extend(
        b"1000\r\n"
            .iter()
            .chain(&[b'x'; 0x1000])
            .chain(b"\r\n")
            .cycle()
            .take(4106 * 99),
    );
    let (address, _seen) = answering(endless).await;
    let answer = send(&local(), &format!("http://{address}/"))
        .await
        .expect("an answer");
    assert_eq!(
        (answer.body.len(), answer.truncated),
        (MAX_KEPT_BYTES, true)
    );
}

/// A client for which the name `name.test` points to `addresses`.
fn named(policy: &EgressPolicy, addresses: &[&str]) -> Client {
    let parsed = addresses
        .iter()
        .filter_map(|address| address.parse::<IpAddr>().ok());
    let table = BTreeMap::from([("name.test".to_owned(), parsed.collect())]);
    Client::with(policy, NameSource::Table(table), MAX_CONNECTIONS_PER_HOST).expect("a policy")
}

#[tokio::test]
async fn a_name_that_points_inside_is_refused_and_nothing_is_connected() {
    let (address, mut seen) = answering(ok("")).await;
    let url = format!("http://name.test:{}/", address.port());
    for inside in [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "::1",
        "::ffff:127.0.0.1",
        "fd00::1",
    ] {
        let client = named(&EgressPolicy::default(), &[inside]);
        let answer = send(&client, &url).await;
        assert_eq!(code(&answer), Some(EgressErrorCode::Refused), "{inside}");
        let message = answer
            .map_err(|failure| failure.message)
            .err()
            .unwrap_or_default();
        assert!(message.starts_with("name.test resolves to "), "{message}");
    }
    assert!(seen.try_recv().is_err());
    let unknown = send(&named(&EgressPolicy::default(), &[]), "http://other.test/").await;
    assert_eq!(code(&unknown), Some(EgressErrorCode::Unreachable));
    assert!(unknown.is_err_and(|failure| failure.message.contains("does not resolve")));
}

#[tokio::test]
async fn of_a_mixed_answer_only_permitted_addresses_are_tried() {
    let (address, mut seen) = answering(ok("")).await;
    let policy = EgressPolicy {
        allow: Vec::new(),
        loopback: true,
    };
    let client = named(&policy, &["10.255.255.1", "127.0.0.1", "169.254.169.254"]);
    let answer = send(&client, &format!("http://name.test:{}/", address.port())).await;
    assert_eq!(answer.map(|answer| answer.status), Ok(200));
    assert!(
        seen.recv()
            .await
            .is_some_and(|said| said.contains("host: name.test"))
    );
}

#[tokio::test]
async fn a_name_listed_with_a_port_is_reached_at_that_port_only() {
    let (address, _seen) = answering(ok("")).await;
    let (other, _other_seen) = answering(ok("")).await;
    let allow = vec![format!("name.test:{}", address.port())];
    let client = named(
        &EgressPolicy {
            allow,
            loopback: false,
        },
        &["127.0.0.1"],
    );
    let answer = send(&client, &format!("http://name.test:{}/", address.port())).await;
    assert_eq!(answer.map(|answer| answer.status), Ok(200));
    let answer = send(&client, &format!("http://name.test:{}/", other.port())).await;
    assert_eq!(code(&answer), Some(EgressErrorCode::Refused));
}

#[tokio::test]
async fn the_wait_for_a_place_does_not_count_as_the_receivers_time() {
    let (listener, address) = listener().await;
    let policy = EgressPolicy {
        allow: Vec::new(),
        loopback: true,
    };
    let client = Client::with(&policy, NameSource::System, 1).expect("a policy");
    let url = format!("http://{address}/");
    let first = tokio::spawn({
        let (client, url) = (client.clone(), url.clone());
        async move { send(&client, &url).await }
    });
    let (mut stream, _) = listener.accept().await.expect("the first");
    read_request(&mut stream).await;
    // The second has no place as long as the first has no answer. Its own time would long be over
    // by then if it were counted from here.
    let mut hurried = request(&url);
    hurried.timeout = Duration::from_secs(5);
    let mut second = std::pin::pin!(client.send(hurried));
    let waited = tokio::time::timeout(Duration::from_millis(20), &mut second).await;
    assert!(waited.is_err(), "the second waits");
    stream.write_all(&ok("one")).await.expect("sent");
    assert_eq!(
        first.await.expect("the first").map(|answer| answer.body),
        Ok(b"one".to_vec())
    );
    let serve_second = async {
        read_request(&mut stream).await;
        stream.write_all(&ok("two")).await.expect("sent");
    };
    // Over the same connection: it was kept.
    let (answer, ()) = tokio::join!(second, serve_second);
    assert_eq!(answer.map(|answer| answer.body), Ok(b"two".to_vec()));
}

#[tokio::test]
async fn a_sending_that_waits_is_small() {
    let client = local();
    let waiting = client.send(request("http://127.0.0.1:1/"));
    let bytes = size_of_val(&waiting);
    assert!(bytes <= 1024, "{bytes} bytes");
}

#[tokio::test]
async fn nothing_leaves_while_the_gate_is_closed_and_it_is_asked_again() {
    let (address, mut seen) = answering(ok("fine")).await;
    let client = local();
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    client.set_gate(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst) >= 2
    }));
    let sent = send(&client, &format!("http://{address}/")).await;
    assert_eq!(sent.expect("an answer").status, 200);
    assert_eq!(looks.load(Ordering::SeqCst), 3);
    assert!(seen.recv().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_stays_closed_is_an_error_before_anything_was_sent() {
    let client = local();
    client.set_gate(Arc::new(|| false));
    let refused = send(&client, "http://127.0.0.1:9/").await.unwrap_err();
    assert!(
        !refused.sent && refused.message.contains("own its ledger"),
        "{refused}"
    );
}
