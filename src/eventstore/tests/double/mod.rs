//! A double of a server of EventStoreDB: its protocol, as far as a ledger needs it, and what can go wrong
//! with it. No line of it is a server's; it is written after the published protocol.
//!
//! ```text
//! client ──HTTP/2──▶ Node ──one of them leads──▶ Kept: streams, and what becomes of the next appends
//! ```

#![allow(dead_code, clippy::result_large_err, clippy::unwrap_used)]

pub(crate) mod messages;
mod prompt;
pub(crate) mod streams;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn as hyper_service;
use hyper_util::rt::{TokioExecutor, TokioIo};
use messages::*;
use prompt::PromptStream;
use streams::{AppendFault, Arrived, DoubleAnswer, Kept};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codec::ProstCodec;
use tonic::metadata::MetadataMap;
use tonic::server::Grpc;
use tonic::{Code, Status, Streaming};
use tower::service_fn;

/// Drives every double of a test.
static SERVER: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).thread_name("double");
    builder.enable_all().build().unwrap()
});

/// A cluster of servers that keep the same.
pub(crate) struct Double {
    cluster: Arc<Cluster>,
    nodes: Mutex<Vec<Option<JoinHandle<()>>>>,
}

struct Cluster {
    kept: Mutex<Kept>,
    /// The number of the node that leads.
    leader: Mutex<usize>,
    addresses: Mutex<Vec<SocketAddr>>,
    /// The nodes that were killed.
    dead: Mutex<Vec<usize>>,
}

impl Double {
    /// One server.
    pub(crate) fn new() -> Self {
        Self::cluster(1)
    }

    /// Several, of which the first leads.
    pub(crate) fn cluster(nodes: usize) -> Self {
        let cluster = Arc::new(Cluster {
            kept: Mutex::default(),
            leader: Mutex::new(0),
            addresses: Mutex::default(),
            dead: Mutex::default(),
        });
        let double = Self {
            cluster,
            nodes: Mutex::default(),
        };
        for number in 0..nodes {
            let listener = SERVER.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            double.cluster.addresses.lock().unwrap().push(address);
            double.begin(number, listener);
        }
        double
    }

    fn begin(&self, number: usize, listener: TcpListener) {
        let cluster = Arc::clone(&self.cluster);
        let node = SERVER.spawn(accept(cluster, number, listener));
        self.nodes.lock().unwrap().push(Some(node));
    }

    /// The address of a node, for a ledger of this name.
    pub(crate) fn address(&self, node: usize, ledger: &str) -> String {
        let at = self.cluster.addresses.lock().unwrap()[node];
        format!("esdb://{at}?tls=false&ledger={ledger}")
    }

    /// The address of all nodes.
    pub(crate) fn address_of_all(&self, ledger: &str) -> String {
        let addresses = self.cluster.addresses.lock().unwrap();
        let nodes: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("esdb://{}?tls=false&ledger={ledger}", nodes.join(","))
    }

    /// Has another node lead.
    pub(crate) fn lead(&self, node: usize) {
        *self.cluster.leader.lock().unwrap() = node;
    }

    /// Ends a node with its connections.
    pub(crate) fn kill(&self, node: usize) {
        self.cluster.dead.lock().unwrap().push(node);
        let ended = self.nodes.lock().unwrap()[node].take();
        if let Some(ended) = ended {
            ended.abort();
            let over = SERVER.block_on(ended);
            drop(over);
        }
    }

    /// What is kept.
    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.cluster.kept.lock().unwrap()
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        for node in self.nodes.lock().unwrap().iter().flatten() {
            node.abort();
        }
    }
}

async fn accept(cluster: Arc<Cluster>, number: usize, listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let cluster = Arc::clone(&cluster);
        connections.spawn(async move {
            let service = hyper_service(move |request| {
                let cluster = Arc::clone(&cluster);
                async move { Ok::<_, Infallible>(answer(cluster, number, request).await) }
            });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let served = http
                .serve_connection(TokioIo::new(PromptStream(stream)), service)
                .await;
            drop(served);
        });
    }
}

async fn answer(
    cluster: Arc<Cluster>,
    number: usize,
    request: Request<Incoming>,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let wants_leader = request.headers().get("requires-leader").is_some();
    let elsewhere = wants_leader.then(|| cluster.not_leader(number)).flatten();
    match path.as_str() {
        "/event_store.client.server_features.ServerFeatures/GetSupportedMethods" => {
            let codec = ProstCodec::<SupportedMethods, Empty>::default();
            let work = service_fn(|_| async { Ok(tonic::Response::new(features())) });
            Grpc::new(codec).unary(work, request).await
        }
        "/event_store.client.gossip.Gossip/Read" => {
            let codec = ProstCodec::<ClusterInfo, Empty>::default();
            let work = service_fn(|_| {
                let members = cluster.members();
                async { Ok(tonic::Response::new(ClusterInfo { members })) }
            });
            Grpc::new(codec).unary(work, request).await
        }
        "/event_store.client.streams.Streams/Read" => {
            let codec = ProstCodec::<ReadResp, ReadReq>::default();
            let work = service_fn(|request: tonic::Request<ReadReq>| {
                let read = elsewhere
                    .clone()
                    .map_or_else(|| cluster.read(request.get_ref()), Err);
                let read = read.map(|read| tokio_stream::iter(read.into_iter().map(Ok)));
                async { read.map(tonic::Response::new) }
            });
            Grpc::new(codec).server_streaming(work, request).await
        }
        "/event_store.client.streams.Streams/Append" => {
            let codec = ProstCodec::<AppendResp, AppendReq>::default();
            let work = service_fn(|request: tonic::Request<Streaming<AppendReq>>| {
                let (cluster, elsewhere) = (Arc::clone(&cluster), elsewhere.clone());
                async move {
                    elsewhere.map_or(Ok(()), Err)?;
                    let arrived = arrived(request.into_inner()).await?;
                    let answer = cluster.kept.lock().unwrap().take(arrived.clone());
                    as_append(&arrived, answer).map(tonic::Response::new)
                }
            });
            Grpc::new(codec).client_streaming(work, request).await
        }
        "/event_store.client.streams.Streams/BatchAppend" => {
            let codec = ProstCodec::<BatchAppendResp, BatchAppendReq>::default();
            let work = service_fn(|request: tonic::Request<Streaming<BatchAppendReq>>| {
                let (cluster, elsewhere) = (Arc::clone(&cluster), elsewhere.clone());
                async move {
                    elsewhere.map_or(Ok(()), Err)?;
                    let (give, answers) = tokio::sync::mpsc::channel(1024);
                    tokio::spawn(batch(cluster, number, request.into_inner(), give));
                    Ok(tonic::Response::new(ReceiverStream::new(answers)))
                }
            });
            Grpc::new(codec).streaming(work, request).await
        }
        "/event_store.client.streams.Streams/Delete"
        | "/event_store.client.streams.Streams/Tombstone" => {
            let codec = ProstCodec::<DeleteResp, DeleteReq>::default();
            let for_good = path.ends_with("Tombstone");
            let work = service_fn(|request: tonic::Request<DeleteReq>| {
                let options = request.into_inner().options.unwrap();
                let name = StreamIdentifier::name(&options.stream);
                let mut kept = cluster.kept.lock().unwrap();
                let deleted = match kept.keeps_all {
                    true => Err(Status::unavailable("not now")),
                    false => Ok(kept.delete(&name, for_good)),
                };
                async { deleted.map(|_| tonic::Response::new(DeleteResp::default())) }
            });
            Grpc::new(codec).unary(work, request).await
        }
        _ => Status::unimplemented(path).into_http(),
    }
}

/// The messages of an append.
async fn arrived(mut sent: Streaming<AppendReq>) -> Result<Arrived, Status> {
    let (mut options, mut events) = (None, Vec::new());
    while let Some(message) = sent.message().await? {
        options = options.or(message.options);
        events.extend(message.proposed);
    }
    let options = options.ok_or_else(|| Status::invalid_argument("no options"))?;
    Ok(Arrived { options, events })
}

/// A session of appends: each is answered, and a lost one ends it.
async fn batch(
    cluster: Arc<Cluster>,
    number: usize,
    mut sent: Streaming<BatchAppendReq>,
    answers: tokio::sync::mpsc::Sender<Result<BatchAppendResp, Status>>,
) {
    while let Ok(Some(message)) = sent.message().await {
        if let Some(elsewhere) = cluster.not_leader(number) {
            let given = answers.send(Err(elsewhere)).await;
            drop(given);
            return;
        }
        let arrived = Arrived {
            options: message.options.clone().unwrap(),
            events: message.proposed,
        };
        let answer = cluster.kept.lock().unwrap().take(arrived.clone());
        let mut response = BatchAppendResp {
            correlation: message.correlation,
            stream: arrived.options.stream.clone(),
            ..BatchAppendResp::default()
        };
        let answer = match answer {
            DoubleAnswer::Stored { last, position } => {
                response.success = Some(success(last, position));
                Ok(response)
            }
            DoubleAnswer::AppendFault(refused) => {
                let code = Code::AlreadyExists as i32;
                let message = format!("{refused:?}");
                response.error = Some(RpcStatus { code, message });
                Ok(response)
            }
            DoubleAnswer::Deadline => {
                let code = Code::DeadlineExceeded as i32;
                let message = "Timeout".to_owned();
                response.error = Some(RpcStatus { code, message });
                Ok(response)
            }
            DoubleAnswer::Nothing => Err(Status::unavailable("the connection ended")),
        };
        let is_over = answer.is_err();
        if answers.send(answer).await.is_err() || is_over {
            return;
        }
    }
}

fn success(last: u64, position: u64) -> AppendSuccess {
    AppendSuccess {
        current_revision: Some(last),
        position: Some(Position {
            commit: position,
            prepare: position,
        }),
    }
}

fn as_append(arrived: &Arrived, answer: DoubleAnswer) -> Result<AppendResp, Status> {
    let mut response = AppendResp::default();
    match answer {
        DoubleAnswer::Stored { last, position } => response.success = Some(success(last, position)),
        DoubleAnswer::AppendFault(AppendFault::Conflict { current }) => {
            let options = &arrived.options;
            response.wrong = Some(WrongExpectedVersion {
                current_revision: current,
                current_no_stream: current.is_none().then_some(Empty {}),
                expected_revision: options.revision,
                expected_any: options.any,
                expected_no_stream: options.no_stream,
            });
        }
        DoubleAnswer::AppendFault(AppendFault::TooLarge) => {
            return Err(Status::invalid_argument("Maximum Append Size Exceeded."));
        }
        DoubleAnswer::AppendFault(AppendFault::Deleted) => return Err(deleted()),
        DoubleAnswer::Nothing => return Err(Status::unavailable("the connection ended")),
        DoubleAnswer::Deadline => return Err(Status::deadline_exceeded("Timeout")),
    }
    Ok(response)
}

fn deleted() -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert("exception", "stream-deleted".parse().unwrap());
    Status::with_metadata(Code::FailedPrecondition, "it is deleted", metadata)
}

fn features() -> SupportedMethods {
    SupportedMethods {
        methods: vec![SupportedMethod {
            method: "batchappend".to_owned(),
            service: "event_store.client.streams.streams".to_owned(),
        }],
        version: "23.10.0".to_owned(),
    }
}

impl Cluster {
    /// What a node says that does not lead.
    fn not_leader(&self, number: usize) -> Option<Status> {
        let leader = *self.leader.lock().unwrap();
        if leader == number {
            return None;
        }
        let address = self.addresses.lock().unwrap()[leader];
        let mut metadata = MetadataMap::new();
        metadata.insert("exception", "not-leader".parse().unwrap());
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        metadata.insert("leader-endpoint-host", host.parse().unwrap());
        metadata.insert("leader-endpoint-port", port.parse().unwrap());
        let words = "Leader info available";
        Some(Status::with_metadata(Code::NotFound, words, metadata))
    }

    fn members(&self) -> Vec<MemberInfo> {
        let (leader, dead) = (*self.leader.lock().unwrap(), self.dead.lock().unwrap());
        let addresses = self.addresses.lock().unwrap();
        let nodes = addresses.iter().enumerate().map(|(number, at)| MemberInfo {
            instance: Id::of(&uuid::Uuid::from_u128(number as u128).to_string()),
            // A leader, or one that follows it.
            state: if number == leader { 8 } else { 6 },
            is_alive: !dead.contains(&number),
            end_point: Some(EndPoint {
                address: at.ip().to_string(),
                port: u32::from(at.port()),
            }),
        });
        nodes.collect()
    }

    fn read(&self, request: &ReadReq) -> Result<Vec<ReadResp>, Status> {
        let options = request.options.clone().unwrap();
        let of = options.stream.unwrap();
        let name = StreamIdentifier::name(&of.stream);
        let kept = self.kept.lock().unwrap();
        if kept.is_silent {
            return Err(Status::unavailable("not now"));
        }
        let Some(events) = kept.seen(&name).map_err(|_| deleted())? else {
            let not_found = Some(StreamNotFound { stream: of.stream });
            return Ok(vec![ReadResp {
                not_found,
                ..ReadResp::default()
            }]);
        };
        let count = usize::try_from(options.count.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let as_read = |event: &streams::KeptEvent| ReadResp {
            event: Some(ReadEvent {
                event: Some(SentEvent {
                    id: Id::of(&event.id),
                    stream: StreamIdentifier::of(&name),
                    revision: event.revision,
                    prepare: event.position,
                    commit: event.position,
                    metadata: event.metadata.clone(),
                    custom_metadata: event.custom_metadata.clone(),
                    data: event.data.clone(),
                }),
                commit: Some(event.position),
            }),
            not_found: None,
        };
        Ok(match options.direction {
            0 => {
                let from = of.revision.unwrap_or_default();
                let seen = events.iter().filter(|event| event.revision >= from);
                seen.take(count).map(as_read).collect()
            }
            _ => {
                let from = of.revision.unwrap_or(u64::MAX);
                let seen = events.iter().rev().filter(|event| event.revision <= from);
                seen.take(count).map(as_read).collect()
            }
        })
    }
}
