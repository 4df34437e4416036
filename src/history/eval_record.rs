//! The record of an eval, as the ledger has it.

use ktsu_eval::{EvalRecord, Held, RecordFault};
use ktsu_ledger::branch::{Blobs, FrameStream};
use ktsu_ledger::event::{EvalEvent, ScenarioStarted};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Event, StreamId};

/// The reason why an eval cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalReadError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its frames do not fold.
    #[error("{0}; `ktsu verify` says more")]
    Record(#[from] RecordFault),
}

/// The record of an eval, read frame by frame, without the contents of folders and services.
///
/// # Errors
/// [`EvalReadError`]; also if there is no such stream.
pub fn record(
    reader: &dyn Reader,
    stream: &StreamId,
    held: Held,
) -> Result<EvalRecord, EvalReadError> {
    let frames = FrameStream::new(reader, stream, Held::is_no_content);
    EvalRecord::read(frames.map(|frame| Ok::<_, EvalReadError>(frame?)), held)
}

/// The event that says what was checked, with the contents of folders and services; none if this is
/// no such frame.
///
/// # Errors
/// [`StoreError`].
pub fn started(
    reader: &dyn Reader,
    stream: &StreamId,
    seq: u64,
) -> Result<Option<ScenarioStarted>, StoreError> {
    let found = reader.read(stream, seq, 1)?;
    let found = found.first().filter(|record| record.seq == seq);
    let frame = found.map(|record| Blobs::new(reader).decode(stream, record));
    Ok(match frame.transpose()?.map(|frame| frame.event) {
        Some(Event::Eval(EvalEvent::ScenarioStarted(started))) => Some(started),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ktsu_eval::{EvalSpec, EvalWriter};
    use ktsu_ledger::event::{EvalStarted, Principal};
    use ktsu_ledger::store::MemoryStore;
    use ktsu_ledger::{Actor, CanonicalJson, Draft, Entry, Hash, Link, Store as _, Timestamp};

    use super::*;
    use crate::eval_list::{self, EvalList, EvalsWanted};
    use crate::eval_sheet::{self, EvalSheet};
    use crate::evals;
    use crate::watched_reader::WatchedReader;

    const SPEC: &str = "subject: {}\nreplicas: 3\ninvariants:\n  \
        a: {description: d, check: {type: output}}\n";

    fn left(run: u32, bytes: usize) -> CanonicalJson {
        CanonicalJson::string(&run.to_string().repeat(bytes))
    }

    /// An eval of three runs, which left a small and a large folder, and a large database.
    fn events() -> Vec<EvalEvent> {
        let (spec, _) = EvalSpec::parse(Path::new("a.eval.yaml"), SPEC).unwrap();
        let started = EvalStarted {
            by: Principal {
                auth: "none".to_owned(),
                id: "local".to_owned(),
            },
            checks: spec.as_json.clone(),
            engine: "ktsu 1".to_owned(),
            file: "a.eval.yaml".to_owned(),
            sandbox: None,
            spec: SPEC.to_owned(),
            spec_digest: Hash::of(SPEC.as_bytes()),
            suite: spec.suite.as_ref().map(|suite| suite.recorded(None)),
        };
        let (mut writer, mut events) = EvalWriter::begin(started, spec.pass_threshold);
        for (run, workspace, services) in [
            (1, Some(left(1, 10)), None),
            (2, Some(left(2, 100_000)), None),
            (3, None, Some(left(3, 100_000))),
        ] {
            let started = ScenarioStarted {
                abandoned: Vec::new(),
                frames: 1,
                head: Hash::ZERO,
                replica: 0,
                run: StreamId::run(&format!("run_{run}")).unwrap(),
                scenario: 0,
                services,
                workspace,
            };
            events.extend(writer.judged(started, Err("timeout".to_owned())));
        }
        events.extend(writer.finish());
        events.into_iter().map(|(_, event)| event).collect()
    }

    fn recorded(stream: &StreamId) -> (MemoryStore, Vec<Hash>) {
        let mut store = MemoryStore::new();
        let contents = append(&mut store, stream, events());
        (store, contents)
    }

    fn append(store: &mut MemoryStore, stream: &StreamId, events: Vec<EvalEvent>) -> Vec<Hash> {
        let (mut prev, mut sealed) = (Hash::ZERO, Vec::new());
        for (seq, event) in (0..).zip(events) {
            let draft = Draft {
                scope: String::new(),
                actor: Actor::Orchestrator,
                cause: Vec::new(),
                event: Event::Eval(event),
            };
            let stream = stream.clone();
            let link = Link { stream, seq, prev };
            let one = draft.seal(link, Timestamp::from_micros(1)).unwrap();
            prev = one.record.hash;
            sealed.push(one);
        }
        let blobs = sealed.iter().flat_map(|one| &one.blobs);
        let contents = blobs.map(|blob| blob.hash).collect();
        let (entry, _) = Entry::from_sealed(sealed).unwrap();
        let epoch = store.acquire().unwrap();
        let appended = store.append(epoch, &[entry]).unwrap();
        assert!(appended[0].is_ok());
        contents
    }

    fn named(eval: usize) -> StreamId {
        format!("eval:eval_{eval:04}").parse().unwrap()
    }

    fn of_spec(file: &str) -> Vec<EvalEvent> {
        let mut events = events();
        if let Some(EvalEvent::Started(started)) = events.first_mut() {
            started.file = file.to_owned();
        }
        events
    }

    fn names(list: &EvalList) -> Vec<String> {
        let evals = list.evals.iter();
        let names = evals.map(|eval| match eval {
            Ok(report) => report.eval_id.clone(),
            Err(stream) => format!("unreadable {}", stream.name()),
        });
        names.collect()
    }

    #[test]
    fn evals_are_listed_page_by_page_newest_first_and_by_the_file_of_their_spec() {
        let mut store = MemoryStore::new();
        for (eval, file) in [(1, "a"), (2, "b"), (3, "a"), (5, "a")] {
            append(&mut store, &named(eval), of_spec(file));
        }
        // One that has no verdicts at its end is no eval.
        append(&mut store, &named(4), of_spec("a").split_off(1));
        let page = |wanted: &EvalsWanted| eval_list::page(&store, wanted, 2).unwrap();
        let first = page(&EvalsWanted::default());
        assert_eq!(names(&first), ["eval_0005", "unreadable eval_0004"]);
        let next = EvalsWanted {
            before: first.next,
            ..EvalsWanted::default()
        };
        let second = page(&next);
        assert_eq!(names(&second), ["eval_0003", "eval_0002"]);
        let by_a = EvalsWanted {
            file: Some("a".to_owned()),
            before: second.next,
            ..EvalsWanted::default()
        };
        let last = page(&by_a);
        assert_eq!(
            (names(&last), last.next),
            (vec!["eval_0001".to_owned()], None)
        );
        let run = |name: &str| EvalsWanted {
            run: StreamId::run(name).ok(),
            file: Some("b".to_owned()),
            before: None,
        };
        assert_eq!(names(&page(&run("run_2"))), ["eval_0002"]);
        assert!(names(&page(&run("run_4"))).is_empty());
    }

    #[test]
    fn a_page_of_evals_looks_at_a_bounded_number_of_them() {
        let mut store = MemoryStore::new();
        let events = of_spec("a");
        for eval in 0..=eval_list::MAX_LOOKED_AT {
            append(&mut store, &named(eval), vec![events[0].clone()]);
        }
        let wanted = EvalsWanted {
            file: Some("b".to_owned()),
            ..EvalsWanted::default()
        };
        let page = eval_list::page(&store, &wanted, 10).unwrap();
        assert_eq!((names(&page).len(), page.next), (0, Some(named(1))));
    }

    #[test]
    fn a_page_of_evals_ends_with_the_one_after_which_enough_was_read() {
        let mut store = MemoryStore::new();
        for eval in 1..=4 {
            append(&mut store, &named(eval), of_spec("a"));
        }
        let of_one = store.tail(&named(1)).unwrap().unwrap().seq;
        let page = |frames| {
            let page = eval_list::page_within(&store, &EvalsWanted::default(), 10, frames);
            let page = page.unwrap();
            (names(&page).len(), page.next)
        };
        assert_eq!(page(1), (1, Some(named(4))));
        assert_eq!(page(of_one + 1), (2, Some(named(3))));
        assert_eq!(page(4 * of_one), (4, None));
    }

    #[test]
    fn the_eval_of_a_spec_before_another_one_is_the_newest_of_them() {
        let mut store = MemoryStore::new();
        for (eval, file) in [(1, "a"), (2, "a"), (3, "b"), (4, "a")] {
            append(&mut store, &named(eval), of_spec(file));
        }
        let earlier = |eval, file| eval_list::earlier_of_spec(&store, &named(eval), file).unwrap();
        assert_eq!(earlier(4, "a"), Some(named(2)));
        assert_eq!(earlier(2, "a"), Some(named(1)));
        assert_eq!(earlier(1, "a"), None);
        assert_eq!(earlier(3, "b"), None);
    }

    #[test]
    fn a_sheet_has_a_column_for_each_check_of_the_spec_and_no_result_of_a_run_without_any() {
        let stream = named(1);
        let (store, _) = recorded(&stream);
        let sheet = eval_sheet::sheet(&store, &stream).unwrap().unwrap();
        assert_eq!(sheet.names, ["scenario"]);
        let columns = sheet.checks.iter();
        let columns: Vec<_> = columns
            .map(|one| (one.name.as_str(), one.description.as_deref()))
            .collect();
        assert_eq!(columns, [("a", Some("d"))]);
        assert_eq!(EvalSheet::cell(&sheet.report.scenarios[0], 0), None);
        assert_eq!(eval_sheet::sheet(&store, &named(2)).unwrap(), None);
    }

    #[test]
    fn evals_are_listed_shown_and_verified_without_what_their_runs_left() {
        let stream: StreamId = "eval:eval_a".parse().unwrap();
        let (store, contents) = recorded(&stream);
        assert_eq!(contents.len(), 2);
        let reader = WatchedReader {
            store: &store,
            // One frame a page.
            before_read: &|_, limit| Ok(limit.min(1)),
            before_blob: &|hash| assert!(!contents.contains(hash), "contents are read"),
        };
        let listed = eval_list::list(&reader, None, 10).unwrap();
        let first = listed[0].as_ref().unwrap();
        assert_eq!((listed.len(), first.status.as_str()), (1, "error"));
        assert_eq!(first.scenarios[0].runs().len(), 3);
        assert!(evals::read(&reader, &stream).unwrap().is_some());
        let problem = evals::EvalVerifier::new().problem(&reader, &stream);
        assert_eq!(problem, None);
        let whole = EvalRecord::of(&ktsu_ledger::branch::frames(&store, &stream).unwrap()).unwrap();
        let record = record(&reader, &stream, Held::WithoutContents).unwrap();
        for (run, whole) in record.runs.iter().zip(&whole.runs) {
            assert_eq!(
                (&run.started.workspace, &run.started.services),
                (&None, &None)
            );
            assert_eq!(
                started(&store, &stream, run.seq).unwrap().as_ref(),
                Some(&whole.started)
            );
        }
        assert_eq!(started(&store, &stream, 0).unwrap(), None);
    }
}
