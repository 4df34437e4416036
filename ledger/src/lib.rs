//! The record of what happened: immutable, hash-chained frames, and the stores that keep them.

#![warn(clippy::wildcard_enum_match_arm)]

pub mod appender;
pub mod branch;
pub mod canonical;
pub mod chain;
pub mod copy;
pub mod disk_space;
pub mod event;
pub mod frame;
mod frame_body;
mod frame_head;
pub mod hash;
pub mod id;
pub mod jcs;
pub mod keys;
pub mod merkle;
pub mod note;
mod place;
pub mod removal;

pub mod store;
pub mod strict;
mod text;
pub mod time;
pub mod topic;
pub mod verify;

pub use canonical::CanonicalJson;
pub use event::Event;
pub use frame::{Blob, Draft, Frame, FrameError, Link, Record, Sealed};
pub use frame_head::FrameHead;
pub use hash::Hash;
pub use id::{Actor, Cause, StreamId};
pub use place::{Backend, Ledger, LedgerPlace, OwnError, Owned, verify_file};
pub use store::sqlite::{backup, hard_links, lock, reserve};
pub use store::{Entry, Epoch, IndexRow, LedgerOwner, Reader, Store, StoreError};
pub use time::Timestamp;
