//! Why a call has no answer, and what that says about what is stored.

use ktsu_ledger::StoreError;

/// The number of the protocol for what no other attempt changes, such as an append that is too large.
const INVALID_ARGUMENT: i32 = 3;

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EventCallError {
    /// There is no such stream.
    Absent,
    /// The stream does not end where the append expects.
    Conflict,
    /// The server does not let this user do it.
    Denied,
    /// The text of the address is not one.
    Address,
    /// The server refused it: nothing of it is stored.
    Refused(String),
    /// The server was not reached, or its answer was lost: what was sent may be stored.
    Lost(String),
    /// There was no answer in time: the same.
    Late,
}

impl EventCallError {
    /// The reason behind an error of the client.
    pub(crate) fn of(error: &kurrentdb::Error) -> Self {
        use kurrentdb::Error;
        match error {
            Error::ResourceNotFound | Error::ResourceDeleted => Self::Absent,
            Error::WrongExpectedVersion { .. } => Self::Conflict,
            Error::AccessDenied => Self::Denied,
            Error::UnsupportedFeature => {
                Self::Refused("the server is too old: 21.6 or newer is needed".to_owned())
            }
            Error::DeadlineExceeded => Self::Late,
            Error::NotLeaderException(_) => Self::Lost("the server does not lead".to_owned()),
            Error::Grpc { code, message } if *code as i32 == INVALID_ARGUMENT => {
                Self::Refused(message.clone())
            }
            Error::Grpc { message, .. } => Self::Lost(message.clone()),
            _ => Self::Lost("the connection ended".to_owned()),
        }
    }

    /// Returns `true` if another client may fare better.
    pub(crate) fn may_be_of_the_way(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Late | Self::Refused(_))
    }

    /// Returns `true` if no other attempt changes anything.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Denied | Self::Address | Self::Refused(_))
    }

    fn words(self) -> String {
        match self {
            Self::Absent => "the stream does not exist".to_owned(),
            Self::Conflict => "the stream was changed by another process".to_owned(),
            Self::Denied => "the server does not permit it to this user".to_owned(),
            Self::Address => "the address is not one".to_owned(),
            Self::Refused(why) | Self::Lost(why) => why,
            Self::Late => "the server did not answer in time".to_owned(),
        }
    }

    /// The error of a question.
    pub(crate) fn reading(self, doing: &'static str) -> StoreError {
        match self.is_final() {
            true => StoreError::failed(doing, self.words()),
            false => StoreError::Unreachable {
                doing,
                why: self.words(),
            },
        }
    }

    /// The error of a change, which may be stored unless it was refused.
    pub(crate) fn writing(self, doing: &'static str) -> StoreError {
        match self.is_final() {
            true => StoreError::failed(doing, self.words()),
            false => StoreError::Unknown(self.words()),
        }
    }
}
