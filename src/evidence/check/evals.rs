//! The verdicts in an archive, judged again by the runs beside them.

use std::collections::BTreeSet;
use std::rc::Rc;

use ktsu_eval::{
    EvalRecord, FrameFold, Held, JudgedRun, RecordFault, ServiceRecords, Subject, judge_again,
};
use ktsu_ledger::event::EvalEvent;
use ktsu_ledger::{Event, Frame, StreamId};
use ktsu_workflow::admit::ENGINE;
use ktsu_workflow::current_output::fold;

use super::content::too_large;
use super::reading::{EvidenceArchive, FRAME_BYTES};
use super::{
    ArchiveVerifyOptions, CheckResult, ClaimFailure, counted, for_one, not_covered, proven,
};

/// The most frames times checks that are judged again: scenarios of one run read it again each.
const MAX_JUDGED: u64 = 20_000_000;

/// A run as it was when it was checked: its envelope, and its frames as checks see them.
type CheckedRun = Rc<(serde_json::Value, Vec<ktsu_eval::FrameView>)>;

/// The results of judging all verdicts again.
#[derive(Default)]
struct JudgedEvals {
    evals: u64,
    /// Checks that gave the recorded result again.
    checks: u64,
    /// The number of frames times checks that were judged.
    spent: u64,
    /// The run that was read last, and how many of its frames.
    last: Option<(StreamId, u64, CheckedRun)>,
    /// The verdicts that were not judged again, and why.
    not_covered: BTreeSet<String>,
}

/// The reason why the record of an eval was not read.
enum UnreadEval {
    Frame,
    Fault(RecordFault),
}

impl From<RecordFault> for UnreadEval {
    fn from(fault: RecordFault) -> Self {
        Self::Fault(fault)
    }
}

fn unread_frames(stream: &str) -> ClaimFailure {
    ClaimFailure::new(format!("the frames of {stream} cannot be read"))
}

impl EvidenceArchive {
    /// Checks that verdicts follow from their specs and from the runs that they are about.
    pub(super) fn evals(&self, against: &ArchiveVerifyOptions) -> CheckResult {
        let mut judged = JudgedEvals::default();
        for (stream, (_, last)) in self.by_stream() {
            if stream.starts_with("eval:") {
                self.judge_eval(stream, last, against, &mut judged)?;
            }
        }
        if judged.evals == 0 && judged.not_covered.is_empty() {
            return proven("there is no verdict");
        }
        if let Some(first) = judged.not_covered.first() {
            let more = match judged.not_covered.len() {
                1 => String::new(),
                count => format!(", and {} more", count - 1),
            };
            return not_covered(format!("{first}{more}"));
        }
        let follow = for_one(&judged.evals, "follows", "follow");
        let verdicts = counted(judged.evals, "verdict");
        let checks = counted(judged.checks, "check");
        proven(format!("{verdicts} {follow} from {checks} made again"))
    }

    fn judge_eval(
        &self,
        stream: &str,
        last: u64,
        against: &ArchiveVerifyOptions,
        judged: &mut JudgedEvals,
    ) -> Result<(), ClaimFailure> {
        if self.held_of_eval(stream, last) > against.run_bytes {
            judged.not_covered.insert(too_large(stream));
            return Ok(());
        }
        let at =
            |fault: RecordFault| ClaimFailure::at(format!("{stream}#{}", fault.seq), fault.reason);
        let frames = (0..=last).map(|seq| {
            let frame = self.with_blobs(stream, seq, &Held::is_no_content);
            frame.ok_or(UnreadEval::Frame)
        });
        let record = EvalRecord::read(frames, Held::WithoutContents);
        let record = record.map_err(|unread| match unread {
            UnreadEval::Frame => unread_frames(stream),
            UnreadEval::Fault(fault) => at(fault),
        })?;
        let Some(spec) = record.spec(ENGINE).map_err(at)? else {
            let words = format!(
                "{stream} was judged by another version, by a spec that this one cannot read"
            );
            judged.not_covered.insert(words);
            return Ok(());
        };
        judged.evals += 1;
        if record.finished.is_none() {
            judged.not_covered.insert(format!("{stream} has not ended"));
        }
        for one in &record.runs {
            let cost = (spec.invariants.len() as u64 + 1).saturating_mul(one.started.frames);
            judged.spent = judged.spent.saturating_add(cost);
            if judged.spent > MAX_JUDGED {
                let words = format!("{stream}: more than is judged again at a time");
                judged.not_covered.insert(words);
                break;
            }
            let Some(run) = self.checked_run(stream, one, against, judged)? else {
                continue;
            };
            let services = match spec.looks_at_services() {
                true => self.received(stream, one.seq, against),
                false => None,
            };
            let subject = Subject {
                envelope: &run.0,
                frames: &run.1,
                workspace: None,
                services: services.as_ref(),
                replies: None,
            };
            let again = judge_again(&record, one, &spec, &subject, ENGINE).map_err(at)?;
            judged.checks += again.judged;
            if again.is_of_another_version {
                let words = format!("{stream} was judged by another version: the words of reasons");
                judged.not_covered.insert(words);
            }
            let of_more = again.not_covered.into_iter();
            judged.not_covered.extend(of_more.map(|kind| {
                format!("{stream}: what a check of type {kind} looked at is not in the run")
            }));
        }
        Ok(())
    }

    /// A run as it was when it was checked: its envelope, and its frames as checks see
    /// them. None where it is not here, or too large.
    fn checked_run(
        &self,
        eval: &str,
        judged_run: &JudgedRun,
        against: &ArchiveVerifyOptions,
        judged: &mut JudgedEvals,
    ) -> Result<Option<CheckedRun>, ClaimFailure> {
        let started = &judged_run.started;
        let run = started.run.as_str();
        if !self.manifest.streams.contains_key(run) {
            judged
                .not_covered
                .insert(format!("{run}, which {eval} judges, is not here"));
            return Ok(None);
        }
        let other = || {
            let words = format!("{eval}: {run} does not have the frames that were judged");
            ClaimFailure::new(words)
        };
        let last = started.frames.checked_sub(1).ok_or_else(other)?;
        let head = self.shared_row(run, last).map(|row| row.hash);
        if head != Some(started.head) {
            return Err(other());
        }
        if let Some((read, frames, found)) = &judged.last
            && (read, *frames) == (&started.run, started.frames)
        {
            return Ok(Some(Rc::clone(found)));
        }
        if self.is_too_large(run, last, against) {
            judged.not_covered.insert(too_large(run));
            return Ok(None);
        }
        let unread = || unread_frames(run);
        let frames = self.read_whole(run, started.frames)?;
        let records = (0..started.frames).map(|seq| self.stored(run, seq));
        let records: Option<Vec<_>> = records.collect();
        let views = FrameFold::views(records.ok_or_else(unread)?.iter().zip(&frames));
        let views = views.map_err(|_| unread())?;
        let unfolded = |error| ClaimFailure::new(format!("{run}: {error}"));
        let fold = fold(&frames).map_err(unfolded)?;
        if !fold.state().status().is_terminal() {
            return Err(ClaimFailure::new(format!("{eval}: {run} had not ended")));
        }
        let envelope = serde_json::to_value(fold.envelope("")).unwrap_or_default();
        let found = Rc::new((envelope, views));
        judged.last = Some((started.run.clone(), started.frames, Rc::clone(&found)));
        Ok(Some(found))
    }

    /// The records of what services received of a run that an eval judged, unless that is too
    /// large.
    fn received(
        &self,
        stream: &str,
        seq: u64,
        against: &ArchiveVerifyOptions,
    ) -> Option<ServiceRecords> {
        if self.whole_weight_of(self.row(stream, seq)?) > against.run_bytes {
            return None;
        }
        match self.whole(stream, seq)?.event {
            Event::Eval(EvalEvent::ScenarioStarted(started)) => {
                started.services.as_ref().map(ServiceRecords::of)
            }
            _ => None,
        }
    }

    /// The number of bytes of an eval that are held while it is judged again: no contents of
    /// folders and services. The frames bind them by their hashes, and what a check looks at is
    /// read for its run alone.
    fn held_of_eval(&self, stream: &str, last: u64) -> u64 {
        let held = (0..=last).filter_map(|seq| {
            let (row, placed) = (self.row(stream, seq)?, self.frame(stream, seq)?);
            Some(match &placed.frame.event {
                Event::Eval(EvalEvent::ScenarioStarted(_)) => FRAME_BYTES,
                _ => self.whole_weight_of(row),
            })
        });
        held.fold(0, u64::saturating_add)
    }

    fn read_whole(&self, stream: &str, frames: u64) -> Result<Vec<Frame>, ClaimFailure> {
        let unread = || unread_frames(stream);
        let whole = (0..frames).map(|seq| self.whole(stream, seq));
        whole.collect::<Option<_>>().ok_or_else(unread)
    }
}
