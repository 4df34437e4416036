//! Clients that do not read their responses.

use axum::body::{Body, Bytes};
use axum::routing::get;
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;

use super::*;

const PIECE: Bytes = Bytes::from_static(&[b'x'; 64 * 1024]);

/// A server whose `GET /endless` answers without an end, and tells when an answer is given up.
async fn endless(limits: ServerLimits) -> (Served, mpsc::UnboundedReceiver<()>) {
    let (gone, is_gone) = mpsc::unbounded_channel();
    let answer = async move || {
        let guard = Gone(gone.clone());
        let pieces = stream::repeat(()).map(move |()| {
            let _held = &guard;
            Ok::<_, Infallible>(PIECE)
        });
        Body::from_stream(pieces)
    };
    let router = Router::new()
        .route("/endless", get(answer))
        .route("/small", get(async || "small"));
    (serve_router(router, limits).await, is_gone)
}

struct Gone(mpsc::UnboundedSender<()>);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn asks(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

async fn asking(served: &Served, path: &str) -> TcpStream {
    let mut stream = served.open().await;
    stream.write_all(&asks(path)).await.expect("sent");
    stream
}

async fn patiently<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("it happens")
}

#[tokio::test]
async fn who_takes_nothing_within_the_time_to_write_is_closed() {
    let (served, mut is_gone) = endless(ServerLimits {
        write_time: Duration::from_millis(50),
        ..limits()
    })
    .await;
    let _unread = asking(&served, "/endless").await;
    patiently(is_gone.recv())
        .await
        .expect("the answer is given up");
}

#[tokio::test]
async fn one_byte_now_and_then_does_not_count_as_reading() {
    let (served, mut is_gone) = endless(ServerLimits {
        write_time: Duration::from_millis(200),
        ..limits()
    })
    .await;
    let mut stream = asking(&served, "/endless").await;
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    let dripping = async {
        loop {
            pace.tick().await;
            if stream.read_u8().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        gone = patiently(is_gone.recv()) => gone.expect("the answer is given up"),
        () = dripping => {}
    }
}

#[tokio::test]
async fn who_reads_slowly_but_reads_is_not_closed() {
    let (served, mut is_gone) = endless(ServerLimits {
        write_time: Duration::from_millis(200),
        ..limits()
    })
    .await;
    let mut stream = asking(&served, "/endless").await;
    let mut pace = tokio::time::interval(Duration::from_millis(10));
    let mut piece = vec![0; PIECE.len()];
    for _ in 0..100 {
        pace.tick().await;
        stream.read_exact(&mut piece).await.expect("it goes on");
    }
    assert!(is_gone.try_recv().is_err());
}

#[tokio::test]
async fn a_newcomer_gets_the_place_of_who_does_not_read() {
    let (served, mut is_gone) = endless(ServerLimits {
        connections: 2,
        ..limits()
    })
    .await;
    let first = asking(&served, "/endless").await;
    let _second = asking(&served, "/endless").await;
    // Both have a place, since both are answered.
    patiently(first.readable()).await.expect("an answer");
    let mut third = asking(&served, "/small").await;
    let mut start = [0; 15];
    patiently(third.read_exact(&mut start))
        .await
        .expect("answered");
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    patiently(is_gone.recv()).await.expect("one was given up");
    assert!(is_gone.try_recv().is_err(), "one place was needed, not two");
}

#[tokio::test]
async fn a_newcomer_gets_the_place_of_who_asks_nothing() {
    let (served, _is_gone) = endless(ServerLimits {
        connections: 1,
        ..limits()
    })
    .await;
    let mut idle = asking(&served, "/small").await;
    let mut start = [0; 15];
    patiently(idle.read_exact(&mut start))
        .await
        .expect("answered");
    let mut second = asking(&served, "/small").await;
    patiently(second.read_exact(&mut start))
        .await
        .expect("answered");
    assert_eq!(&start, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_newcomer_gets_the_place_of_who_does_not_send_its_body() {
    let router = Router::new().route("/echo", axum::routing::post(async |body: Bytes| body));
    let served = serve_router(
        router,
        ServerLimits {
            connections: 1,
            place_time: PATIENCE,
            ..limits()
        },
    )
    .await;
    let mut owes = served.open().await;
    let asked = "POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{";
    owes.write_all(asked.as_bytes()).await.expect("sent");
    let mut newcomer = served.open().await;
    let asked = post_request("/echo", "{}");
    newcomer.write_all(&asked).await.expect("sent");
    let mut answer = [0; 12];
    let read = newcomer.read_exact(&mut answer);
    patiently(read).await.expect("answered");
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn requests_ahead_of_their_answers_are_answered_up_to_a_bound() {
    let (served, _is_gone) = endless(ServerLimits {
        pipelined: 4,
        ..limits()
    })
    .await;
    let answer = served.ask(&asks("/small").repeat(20)).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 5, "{answer}");
    assert_eq!(answer.matches("connection: close").count(), 1, "{answer}");
    assert!(
        answer.ends_with("small"),
        "the last answer is whole: {answer}"
    );
    // Who waits for each answer may go on as long as it likes.
    let mut stream = served.open().await;
    for _ in 0..20 {
        stream.write_all(&asks("/small")).await.expect("sent");
        let mut answer = Vec::new();
        while !answer.ends_with(b"small") {
            let byte = patiently(stream.read_u8()).await.expect("answered");
            answer.push(byte);
        }
    }
}

#[tokio::test]
async fn a_body_that_is_refused_is_read_on_so_that_its_sender_reads_why() {
    let served = super::served(limits()).await;
    for bytes in [2 << 20, 24 << 20] {
        let mut stream = served.open().await;
        let head =
            format!("POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: {bytes}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("sent");
        // Whoever sends everything first, and looks for an answer then.
        patiently(stream.write_all(&vec![b' '; bytes]))
            .await
            .expect("the whole body is taken");
        let answer = rest(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        assert!(answer.contains("body_too_large"), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_no_one_read_is_read_on_as_well() {
    let (served, _is_gone) = endless(limits()).await;
    let bytes = 8 << 20;
    let mut stream = served.open().await;
    let head =
        format!("POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: {bytes}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("sent");
    patiently(stream.write_all(&vec![b' '; bytes]))
        .await
        .expect("the whole body is taken");
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}
