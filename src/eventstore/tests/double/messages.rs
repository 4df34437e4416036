//! The messages of the protocol that the tests need, by the numbers that the protocol publishes for their
//! fields. A choice of one of several fields is several fields here, of which one is there.

use std::collections::HashMap;

use prost::Message;

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StreamIdentifier {
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) stream_name: Vec<u8>,
}

impl StreamIdentifier {
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(Self {
            stream_name: name.as_bytes().to_vec(),
        })
    }

    pub(crate) fn name(this: &Option<Self>) -> String {
        let bytes = this.as_ref().map_or(&[][..], |it| &it.stream_name);
        String::from_utf8_lossy(bytes).into_owned()
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StructuredId {
    #[prost(int64, tag = "1")]
    pub(crate) most: i64,
    #[prost(int64, tag = "2")]
    pub(crate) least: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Id {
    #[prost(message, optional, tag = "1")]
    pub(crate) structured: Option<StructuredId>,
    #[prost(string, optional, tag = "2")]
    pub(crate) string: Option<String>,
}

impl Id {
    pub(crate) fn text(this: &Option<Self>) -> String {
        let Some(id) = this else {
            return String::new();
        };
        if let Some(text) = &id.string {
            return text.clone();
        }
        let Some(parts) = &id.structured else {
            return String::new();
        };
        let number = u128::from(parts.most as u64) << 64 | u128::from(parts.least as u64);
        uuid::Uuid::from_u128(number).to_string()
    }

    pub(crate) fn of(text: &str) -> Option<Self> {
        Some(Self {
            structured: None,
            string: Some(text.to_owned()),
        })
    }
}

/// The end that a stream is to have; of an append, a deletion, and a batch alike.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AppendOptions {
    #[prost(message, optional, tag = "1")]
    pub(crate) stream: Option<StreamIdentifier>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) revision: Option<u64>,
    #[prost(message, optional, tag = "3")]
    pub(crate) no_stream: Option<Empty>,
    #[prost(message, optional, tag = "4")]
    pub(crate) any: Option<Empty>,
    #[prost(message, optional, tag = "5")]
    pub(crate) stream_exists: Option<Empty>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProposedMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<Id>,
    #[prost(map = "string, string", tag = "2")]
    pub(crate) metadata: HashMap<String, String>,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) custom_metadata: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AppendReq {
    #[prost(message, optional, tag = "1")]
    pub(crate) options: Option<AppendOptions>,
    #[prost(message, optional, tag = "2")]
    pub(crate) proposed: Option<ProposedMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Position {
    #[prost(uint64, tag = "1")]
    pub(crate) commit: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) prepare: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AppendSuccess {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) current_revision: Option<u64>,
    #[prost(message, optional, tag = "3")]
    pub(crate) position: Option<Position>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WrongExpectedVersion {
    #[prost(uint64, optional, tag = "6")]
    pub(crate) current_revision: Option<u64>,
    #[prost(message, optional, tag = "7")]
    pub(crate) current_no_stream: Option<Empty>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) expected_revision: Option<u64>,
    #[prost(message, optional, tag = "9")]
    pub(crate) expected_any: Option<Empty>,
    #[prost(message, optional, tag = "11")]
    pub(crate) expected_no_stream: Option<Empty>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AppendResp {
    #[prost(message, optional, tag = "1")]
    pub(crate) success: Option<AppendSuccess>,
    #[prost(message, optional, tag = "2")]
    pub(crate) wrong: Option<WrongExpectedVersion>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BatchAppendReq {
    #[prost(message, optional, tag = "1")]
    pub(crate) correlation: Option<Id>,
    #[prost(message, optional, tag = "2")]
    pub(crate) options: Option<AppendOptions>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) proposed: Vec<ProposedMessage>,
    #[prost(bool, tag = "4")]
    pub(crate) is_final: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BatchAppendResp {
    #[prost(message, optional, tag = "1")]
    pub(crate) correlation: Option<Id>,
    #[prost(message, optional, tag = "2")]
    pub(crate) error: Option<RpcStatus>,
    #[prost(message, optional, tag = "3")]
    pub(crate) success: Option<AppendSuccess>,
    #[prost(message, optional, tag = "4")]
    pub(crate) stream: Option<StreamIdentifier>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadStreamOptions {
    #[prost(message, optional, tag = "1")]
    pub(crate) stream: Option<StreamIdentifier>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) revision: Option<u64>,
    #[prost(message, optional, tag = "3")]
    pub(crate) start: Option<Empty>,
    #[prost(message, optional, tag = "4")]
    pub(crate) end: Option<Empty>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadOptions {
    #[prost(message, optional, tag = "1")]
    pub(crate) stream: Option<ReadStreamOptions>,
    #[prost(int32, tag = "3")]
    pub(crate) direction: i32,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) count: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadReq {
    #[prost(message, optional, tag = "1")]
    pub(crate) options: Option<ReadOptions>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SentEvent {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<Id>,
    #[prost(message, optional, tag = "2")]
    pub(crate) stream: Option<StreamIdentifier>,
    #[prost(uint64, tag = "3")]
    pub(crate) revision: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) prepare: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) commit: u64,
    #[prost(map = "string, string", tag = "6")]
    pub(crate) metadata: HashMap<String, String>,
    #[prost(bytes = "vec", tag = "7")]
    pub(crate) custom_metadata: Vec<u8>,
    #[prost(bytes = "vec", tag = "8")]
    pub(crate) data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadEvent {
    #[prost(message, optional, tag = "1")]
    pub(crate) event: Option<SentEvent>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) commit: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StreamNotFound {
    #[prost(message, optional, tag = "1")]
    pub(crate) stream: Option<StreamIdentifier>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadResp {
    #[prost(message, optional, tag = "1")]
    pub(crate) event: Option<ReadEvent>,
    #[prost(message, optional, tag = "4")]
    pub(crate) not_found: Option<StreamNotFound>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteReq {
    #[prost(message, optional, tag = "1")]
    pub(crate) options: Option<AppendOptions>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteResp {
    #[prost(message, optional, tag = "1")]
    pub(crate) position: Option<Position>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SupportedMethod {
    #[prost(string, tag = "1")]
    pub(crate) method: String,
    #[prost(string, tag = "2")]
    pub(crate) service: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SupportedMethods {
    #[prost(message, repeated, tag = "1")]
    pub(crate) methods: Vec<SupportedMethod>,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EndPoint {
    #[prost(string, tag = "1")]
    pub(crate) address: String,
    #[prost(uint32, tag = "2")]
    pub(crate) port: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberInfo {
    #[prost(message, optional, tag = "1")]
    pub(crate) instance: Option<Id>,
    #[prost(int32, tag = "3")]
    pub(crate) state: i32,
    #[prost(bool, tag = "4")]
    pub(crate) is_alive: bool,
    #[prost(message, optional, tag = "5")]
    pub(crate) end_point: Option<EndPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClusterInfo {
    #[prost(message, repeated, tag = "1")]
    pub(crate) members: Vec<MemberInfo>,
}
