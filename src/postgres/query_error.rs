//! Why a statement has no answer, and what that says about what is stored.

use std::error::Error as _;
use std::io;

use ktsu_ledger::store::StoreError;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// Why a statement has no answer.
#[derive(Debug)]
pub(crate) enum QueryError {
    /// The server refused it: nothing of it is stored.
    Refused(SqlState),
    /// The connection was not made or has ended, or the server cannot work now: what was sent may be
    /// stored, and another attempt may succeed.
    Lost(&'static str),
    /// There was no answer in time: the same.
    Late,
    /// The server wants what the address does not give.
    Unmet,
    /// The server does not encrypt connections.
    Unencrypted,
    /// The server does not prove that it is the one of the address.
    Untrusted,
    /// There are no authorities to trust.
    NoAuthorities,
}

/// What the client says of a server that does not encrypt.
const UNENCRYPTED: &str = "server does not support TLS";
/// What is said of a server that follows another one.
const STANDBY: &str = "the server only reads: it is a standby";

impl QueryError {
    /// The reason behind an error of the client.
    pub(crate) fn of(error: &tokio_postgres::Error) -> Self {
        if let Some(refused) = error.as_db_error() {
            return Self::of_server(refused);
        }
        let mut source = error.source();
        if source.is_some_and(|cause| cause.to_string() == UNENCRYPTED) {
            return Self::Unencrypted;
        }
        while let Some(cause) = source {
            if let Some(cause) = cause.downcast_ref::<io::Error>() {
                return Self::of_system(cause);
            }
            source = cause.source();
        }
        match error.is_closed() {
            true => Self::Lost("the connection ended"),
            false => Self::Unmet,
        }
    }

    fn of_server(error: &DbError) -> Self {
        let code = error.code();
        let class = code.code().get(..2).unwrap_or_default();
        let is_fatal = matches!(
            error.parsed_severity(),
            Some(Severity::Fatal | Severity::Panic)
        );
        match class {
            // The role, its password, the database: no other attempt changes that.
            "28" | "3D" => Self::Refused(code.clone()),
            "40" => Self::Lost("the server rolled it back"),
            _ if *code == SqlState::LOCK_NOT_AVAILABLE => Self::Late,
            _ if *code == SqlState::TOO_MANY_CONNECTIONS => {
                Self::Lost("the server has too many connections")
            }
            _ if *code == SqlState::CANNOT_CONNECT_NOW => {
                Self::Lost("the server is starting or stopping")
            }
            _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Self::Lost(STANDBY),
            "08" | "57" => Self::Lost("the server ended the connection"),
            _ if is_fatal => Self::Lost("the server ended the connection"),
            _ => Self::Refused(code.clone()),
        }
    }

    fn of_system(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                Self::Lost("nothing listens at its address")
            }
            io::ErrorKind::TimedOut => Self::Late,
            // The client's own: the server is not the kind that the address asks for.
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
                Self::Lost(STANDBY)
            }
            io::ErrorKind::InvalidData => Self::Untrusted,
            io::ErrorKind::UnexpectedEof => Self::Lost("the connection ended"),
            _ if error.raw_os_error().is_none() => Self::Lost("its host cannot be found"),
            _ => Self::Lost("the connection ended"),
        }
    }

    /// As an error of a store that was only asked.
    pub(crate) fn reading(self, doing: &'static str) -> StoreError {
        self.of_store(doing, |why| StoreError::Unreachable { doing, why })
    }

    /// As an error of a store that was to change something, or has to know what was changed.
    pub(crate) fn writing(self, doing: &'static str) -> StoreError {
        self.of_store(doing, StoreError::Unknown)
    }

    /// As an error of a store, which says what another attempt may mend.
    fn of_store(
        self,
        doing: &'static str,
        for_now: impl FnOnce(String) -> StoreError,
    ) -> StoreError {
        let why = match self {
            Self::Refused(code) => return refused(doing, &code),
            Self::Lost(why) => return for_now(why.to_owned()),
            Self::Late => return for_now("there was no answer in time".to_owned()),
            Self::Unmet => {
                "the server wants a password, which the address does not give: set PGPASSWORD"
            }
            Self::Unencrypted => {
                "the server does not encrypt connections; an address with ?sslmode=disable permits that"
            }
            Self::Untrusted => {
                "the server does not prove that it is the one of the address; PGSSLROOTCERT names a file \
                 with the authority that vouches for it"
            }
            Self::NoAuthorities => {
                "there is no authority to trust: PGSSLROOTCERT names a PEM file with one"
            }
        };
        StoreError::failed(doing, why)
    }
}

/// What the server refused, in our words.
fn refused(doing: &'static str, code: &SqlState) -> StoreError {
    let why = match *code {
        SqlState::UNDEFINED_TABLE => "the database has no ledger: ktsu ledger init makes one",
        SqlState::INSUFFICIENT_PRIVILEGE => "the role may not do that",
        SqlState::DISK_FULL => "the disk of the server is full",
        SqlState::INVALID_CATALOG_NAME => "the server has no such database",
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            "the server does not accept the role or its password"
        }
        _ => return StoreError::failed(doing, format!("the server refuses ({})", code.code())),
    };
    StoreError::failed(doing, why)
}
