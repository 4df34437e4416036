//! Holds appends back.

use std::sync::mpsc::{Receiver, Sender, channel};

use ktsu_ledger::appender::{Commit, Options};

/// What is appended, and the word that lets each append be known.
pub(crate) struct Gate {
    pub(crate) appended: tokio::sync::mpsc::UnboundedReceiver<Vec<String>>,
    pub(crate) open: Sender<()>,
}

/// An appender whose every append waits for [`Gate::open`] before anybody knows of it. Drop the gate
/// before the engine, whose appender waits for it.
pub(crate) fn gated() -> (Options, Gate) {
    let (told, appended) = tokio::sync::mpsc::unbounded_channel();
    let (open, opened): (Sender<()>, Receiver<()>) = channel();
    let on_commit = move |commit: Commit| {
        let frames = commit.entries.iter().flat_map(|entry| entry.records());
        let kinds = frames.map(|record| record.decode_bare().unwrap().event.kind().to_owned());
        // The test may be over.
        let _ = told.send(kinds.collect());
        let _ = opened.recv();
    };
    let options = Options {
        on_commit: Some(Box::new(on_commit)),
        ..Options::default()
    };
    (options, Gate { appended, open })
}
