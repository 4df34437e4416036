//! The page of a run as one file: its time line, its steps with all that was said in them, why some did not
//! complete, and its frames. It loads nothing, runs nothing, and its links lead to other parts of it.

use std::collections::HashSet;

use ktsu_history::frame_page::is_within;
use ktsu_history::frame_window::{FrameWanted, first_rows};
use ktsu_history::provenance::{self, TraceError, TracedRun};
use ktsu_history::skeleton::{ChildSpan, RunSkeleton, StepSpan, USUAL_ITEMS, skeleton};
use ktsu_history::step_record::{StepPlace, StepRecord, StepRecords};
use ktsu_history::step_summaries::summaries_of;
use ktsu_history::why_not::{WhyNot, why_not};
use ktsu_ledger::Frame;
use ktsu_projections::Lineage;
use ktsu_projections::envelope::{EnvelopeFold, StepView};
use ktsu_projections::step_name::{StepName, path_in};
use maud::{Markup, html};

use crate::decide::Permissions;
use crate::frame::{PagePlace, SignedIn, anchor};
use crate::frame_table::{FrameList, frame_table};
use crate::run::{OFFER_IDLE, RunPage, head, output, timeline};
use crate::saved::saved_page;
use crate::status::badge;
use crate::step_panel::{ShownStep, StepPanel, error_in_words, step_panel};
use crate::text::Verbatim;
use crate::timeline::{TimelineDrawing, TimelineView, layout};
use crate::units::{cost, counted, duration};
use crate::why::{WhyPlace, origin, reasons};

/// The bounds of a file.
struct FileBounds {
    /// The most frames that are listed.
    frames: usize,
    /// The most steps and items that have a part of their own.
    steps: usize,
    /// The most bytes of what is said about them. A step that has no room left is shown in short, or only named.
    bytes: usize,
    /// The most work of finding reasons and origins.
    work: u64,
}

const BOUNDS: FileBounds = FileBounds {
    frames: 5_000,
    steps: 2_000,
    bytes: 16 * 1024 * 1024,
    work: 500_000,
};

/// The page of a recorded run (`""`) or an inline child as a file; none if there is no such child. `fold` is that
/// of the frames.
pub fn run_file(fold: &EnvelopeFold, frames: &[Frame], scope: &str) -> Option<String> {
    bounded(fold, frames, scope, &BOUNDS)
}

fn bounded(
    fold: &EnvelopeFold,
    frames: &[Frame],
    scope: &str,
    bounds: &FileBounds,
) -> Option<String> {
    let run = skeleton(fold, frames, scope, USUAL_ITEMS)?;
    let envelope = fold.envelope(scope)?;
    let records = StepRecords::new(fold, frames);
    let rows = first_rows(&Lineage::from_frames(frames), bounds.frames);
    let mut shown = RunPage {
        is_parked: fold.state().is_parked(),
        summaries: summaries_of(fold.state(), &run),
        by: SignedIn::unknown(),
        may: Permissions::default(),
        run,
        view: TimelineView {
            all_items: true,
            ..TimelineView::default()
        },
        error: envelope.error.as_ref().map(error_in_words),
        output: envelope
            .output
            .and_then(|output| serde_json::to_string_pretty(&output.to_value()).ok()),
        kit: None,
        family: Default::default(),
        step: None,
    };
    let mut drawing = layout(&shown.run, &shown.view);
    if drawing.idle_percent >= OFFER_IDLE {
        shown.view.compress = true;
        drawing = layout(&shown.run, &shown.view);
    }
    let place = PagePlace::file(rows.len() as u64);
    let story = TracedRun::of(frames).ok();
    let mut sections = StepSections {
        place,
        run: &shown.run,
        fold,
        records: &records,
        story: story.map(|story| story.limited_to(bounds.work)),
        most: bounds.steps,
        room: bounds.bytes,
        shown: Vec::new(),
        seen: HashSet::new(),
        left_out: 0,
    };
    sections.steps(scope, &shown.run.steps, envelope.steps);
    sections.others(scope);
    let list = FrameList {
        place,
        run_id: &shown.run.run_id,
        rows: &rows,
        wanted: &FrameWanted::default(),
        is_early: false,
    };
    let body = html! {
        (overview(place, &shown, &drawing))
        (sections.markup(scope))
        section class="saved" id="frames" aria-label="Frames" {
            h2 { "Frames" }
            (frame_table(&list))
            @if frames.len() > rows.len() {
                p class="cut" {
                    (counted((frames.len() - rows.len()) as u64, "later frame")) " left out; "
                    code { "ktsu frames " (Verbatim(&shown.run.run_id)) } " lists all"
                }
            }
        }
    };
    let title = format!("{} {}", shown.run.workflow, shown.run.run_id);
    Some(saved_page(
        &title,
        "A run, saved as a file",
        &body,
        &foot(&shown.run),
    ))
}

fn overview(place: PagePlace, shown: &RunPage, drawing: &TimelineDrawing) -> Markup {
    html! {
        (head(place, shown))
        nav class="tabs" aria-label="Parts of the file" {
            a href="#timeline" { "Time line" }
            a href="#steps" { "Steps" }
            a href="#frames" { "Frames" }
        }
        div class="columns" {
            section id="timeline" aria-label="Time line" { (timeline(place, shown, drawing)) }
            aside aria-label="Output" { (output(shown)) }
        }
    }
}

fn foot(run: &RunSkeleton) -> Markup {
    html! {
        "All times are UTC. Made by ktsu " (env!("CARGO_PKG_VERSION")) " from "
        (counted(run.frames, "frame")) " of " (Verbatim(&run.run_id)) ". "
        "Values that are cut here are whole in the ledger: " code { "ktsu trace RUN FRAME --json" } "."
    }
}

/// The parts of a file about the steps of its run, in the order of the time line.
struct StepSections<'f> {
    place: PagePlace,
    run: &'f RunSkeleton,
    fold: &'f EnvelopeFold,
    records: &'f StepRecords<'f>,
    /// None of a run whose definition cannot be read any more.
    story: Option<TracedRun<'f>>,
    /// The most parts.
    most: usize,
    /// The number of bytes that there is room for.
    room: usize,
    shown: Vec<Markup>,
    /// The paths of those that have a row of the time line.
    seen: HashSet<String>,
    left_out: usize,
}

impl StepSections<'_> {
    /// The steps of a run or a child, of which an envelope has the views in the same order. Children are as deep
    /// as their workflows are nested, which the kit bounds.
    fn steps(&mut self, scope: &str, spans: &[StepSpan], views: Vec<StepView>) {
        for (span, mut view) in spans.iter().zip(views) {
            let mut items = view.items.take().unwrap_or_default().into_iter();
            self.section(span, |records, place| {
                ShownStep::of_step(view, records.record(place))
            });
            for item in &span.items {
                let found = items.find(|one| path_in(scope, &one.id) == item.path);
                if let Some(view) = found {
                    self.section(item, |records, place| {
                        ShownStep::of_item(view, records.record(place))
                    });
                }
            }
            for child in &span.children {
                self.child(child);
            }
        }
    }

    fn child(&mut self, child: &ChildSpan) {
        let scope = child.run_id.split_once('/').map_or("", |(_, scope)| scope);
        if let Some(envelope) = self.fold.envelope(scope) {
            self.steps(scope, &child.steps, envelope.steps);
        }
    }

    fn section(
        &mut self,
        span: &StepSpan,
        content: impl FnOnce(&StepRecords<'_>, StepPlace<'_>) -> ShownStep,
    ) {
        self.seen.insert(span.path.clone());
        if self.shown.len() >= self.most {
            self.left_out += 1;
            return;
        }
        let panel = match self.room {
            0 => None,
            _ => {
                let name = StepName::parse(&span.path);
                let (scope, step) = name.path.rsplit_once('/').unwrap_or(("", &name.path));
                let place = StepPlace {
                    scope,
                    step,
                    item: name.item,
                };
                let content = content(self.records, place);
                self.fits(&span.path, &content)
            }
        };
        let why = self.why(span);
        let why_place = self.why_place();
        self.shown.push(html! {
            section class="step" id=(anchor("step", &span.path)) aria-label=(Verbatim(&span.path)) {
                h2 {
                    span { (Verbatim(&span.path)) } (badge(span.status.as_str()))
                    span class="dim" { (facts(span, self.run.last_ms)) }
                }
                @if let Some(why) = &why { h3 { "Why" } (reasons(why_place, why)) }
                @match &panel {
                    Some(panel) => (panel),
                    None => p class="cut" { "Left out, since the file would be too large; " code { "ktsu trace" } " has it." },
                }
            }
        });
    }

    /// What has no row of its own: items that are summed up, and what responders asked.
    fn others(&mut self, scope: &str) {
        for place in self.records.places() {
            let path = place.path();
            if !is_within(place.scope, scope) || self.seen.contains(&path) {
                continue;
            }
            if self.shown.len() >= self.most || self.room == 0 {
                self.left_out += 1;
                continue;
            }
            let content = ShownStep {
                record: self.records.record(place),
                ..ShownStep::default()
            };
            if content.record == StepRecord::default() {
                continue;
            }
            match self.fits(&path, &content) {
                Some(panel) => self.shown.push(html! {
                    section class="step" aria-label=(Verbatim(&path)) {
                        h2 { (Verbatim(&path)) }
                        (panel)
                    }
                }),
                None => self.left_out += 1,
            }
        }
    }

    /// The panel of a step: whole, in short, or not at all, as there is room.
    fn fits(&mut self, path: &str, content: &ShownStep) -> Option<Markup> {
        let mut panel = StepPanel::whole(self.place, self.run, path, content, "");
        let mut drawn = step_panel(&panel);
        if drawn.0.len() > self.room {
            panel.shorten();
            drawn = step_panel(&panel);
        }
        let rest = self.room.checked_sub(drawn.0.len());
        self.room = rest.unwrap_or_default();
        rest.map(|_| drawn)
    }

    /// The reasons for a step that did not complete.
    fn why(&self, span: &StepSpan) -> Option<WhyNot> {
        let is_asked = matches!(span.status.as_str(), "skipped" | "failed" | "cancelled");
        let story = self.story.as_ref().filter(|_| is_asked)?;
        why_not(story, "", &span.path).ok()
    }

    fn why_place(&self) -> WhyPlace<'_> {
        WhyPlace {
            place: self.place,
            run_id: &self.run.run_id,
        }
    }

    /// All of them, and where the output of the run or of its child came from.
    fn markup(&self, scope: &str) -> Markup {
        let story = self.story.as_ref();
        let found = story.map(|story| provenance::answer(story, scope, "output"));
        html! {
            div class="saved" id="steps" {
                h2 { "Steps" }
                @if self.shown.is_empty() { p class="dim" { "No step has begun; the frames have all that happened." } }
                @for section in &self.shown { (section) }
                @if self.left_out > 0 {
                    p class="cut" {
                        (counted(self.left_out as u64, "later step")) " left out; "
                        code { "ktsu trace " (Verbatim(&self.run.run_id)) } " has all"
                    }
                }
            }
            @match &found {
                Some(Ok(answer)) if !answer.value.is_null() => {
                    section class="saved" aria-label="Where the output came from" {
                        h2 { "Where the output came from" }
                        (origin(self.why_place(), answer))
                    }
                }
                Some(Err(TraceError::TooLarge)) => {
                    p class="saved cut" {
                        "Where the output came from is left out, since it takes long to find: "
                        code { "ktsu trace " (Verbatim(&self.run.run_id)) " --of output" }
                    }
                }
                _ => {}
            }
        }
    }
}

/// `230 ms, $0.0031, 3 model calls, 496 + 59 tokens`.
fn facts(span: &StepSpan, last_ms: u64) -> String {
    let took = span.took_until(last_ms).map(duration);
    let used = &span.metrics;
    let mut facts: Vec<String> = took.into_iter().collect();
    if used.waited_ms > 0 {
        facts.push(format!(
            "{} of it waiting for people",
            duration(used.waited_ms)
        ));
    }
    if used.cost_micro_usd > 0 {
        facts.push(cost(used.cost_micro_usd));
    }
    if used.llm_calls > 0 {
        facts.push(counted(used.llm_calls, "model call"));
        facts.push(format!("{} + {} tokens", used.tokens_in, used.tokens_out));
    }
    facts.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ktsu_ledger::{CanonicalJson, FrameError, Hash, Record};

    use super::*;

    /// The frames of a golden run.
    fn golden(name: &str) -> Vec<Frame> {
        let folder = format!("{}/../../tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
        let read = |file: &str| std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
        let blobs = read("blobs.jsonl");
        let blobs = blobs.lines().map(|line| {
            let text = CanonicalJson::parse(line.as_bytes()).unwrap();
            (Hash::of(line.as_bytes()), text)
        });
        let blobs: BTreeMap<Hash, CanonicalJson> = blobs.collect();
        let frames = read("frames.jsonl");
        let lines = (0u64..).zip(frames.lines());
        let records = lines.map(|(seq, line)| {
            let (body, hash) = line.rsplit_once(r#","hash":""#).unwrap();
            Record {
                seq,
                hash: hash.trim_end_matches("\"}").parse().unwrap(),
                body: format!("{body}}}"),
            }
        });
        let mut blob = |hash: &Hash| Ok::<_, FrameError>(blobs.get(hash).cloned());
        records
            .map(|record| record.decode(&mut blob).unwrap())
            .collect()
    }

    fn file(frames: &[Frame], bounds: &FileBounds) -> String {
        let fold = EnvelopeFold::of(frames).unwrap();
        bounded(&fold, frames, "", bounds).unwrap()
    }

    /// The values of an attribute.
    fn values<'p>(page: &'p str, attribute: &str) -> Vec<&'p str> {
        let parts = page.split(attribute).skip(1);
        parts
            .filter_map(|part| Some(part.split_once('"')?.0))
            .collect()
    }

    #[test]
    fn every_link_of_a_file_leads_to_a_part_of_it() {
        for name in [
            "v1-agent-fan-out",
            "v1-children-execute",
            "v1-tool-approved",
            "v1-failure",
        ] {
            let frames = golden(name);
            for bounds in [
                BOUNDS,
                FileBounds {
                    frames: 5,
                    ..BOUNDS
                },
            ] {
                let page = file(&frames, &bounds);
                let parts = values(&page, " id=\"");
                let links = values(&page, " href=\"");
                assert!(links.len() > 8, "{name}: {links:?}");
                for link in links {
                    let part = link.strip_prefix('#');
                    assert!(
                        part.is_some_and(|part| parts.contains(&part)),
                        "{name}: {link}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_has_no_room_is_shown_in_short_or_left_out_and_the_file_says_so() {
        let frames = golden("v1-agent-fan-out");
        let whole = file(&frames, &BOUNDS);
        assert!(!whole.contains("left out"), "{whole}");
        let few = file(
            &frames,
            &FileBounds {
                frames: 3,
                ..BOUNDS
            },
        );
        let rest = counted((frames.len() - 3) as u64, "later frame");
        assert!(few.contains(&format!("{rest} left out")), "{few}");
        assert_eq!(values(&few, "<tr id=\"f").len(), 3);
        let steps = whole.matches("<section class=\"step\"").count();
        let two = file(&frames, &FileBounds { steps: 2, ..BOUNDS });
        let rest = counted((steps - 2) as u64, "later step");
        assert!(two.contains(&format!("{rest} left out")), "{two}");
        let tight = file(
            &frames,
            &FileBounds {
                bytes: 3_000,
                ..BOUNDS
            },
        );
        let named = "Left out, since the file would be too large";
        assert!(
            tight.contains(named) && tight.len() < whole.len(),
            "{tight}"
        );
        assert_eq!(tight.matches("<section class=\"step\"").count(), steps);
        let idle = file(&frames, &FileBounds { work: 1, ..BOUNDS });
        assert!(
            idle.contains("Where the output came from is left out"),
            "{idle}"
        );
    }

    #[test]
    fn responders_and_items_that_are_summed_up_have_their_conversations_too() {
        let frames = golden("v1-agent-fan-out");
        let fold = EnvelopeFold::of(&frames).unwrap();
        let run = skeleton(&fold, &frames, "", 1).unwrap();
        let records = StepRecords::new(&fold, &frames);
        let mut sections = StepSections {
            place: PagePlace::file(0),
            run: &run,
            fold: &fold,
            records: &records,
            story: None,
            most: 100,
            room: BOUNDS.bytes,
            shown: Vec::new(),
            seen: HashSet::new(),
            left_out: 0,
        };
        sections.others("");
        let page = sections.markup("").into_string();
        for item in 0..4 {
            let part = format!("aria-label=\"each.{item}\"");
            assert!(page.contains(&part), "{part}: {page}");
        }
        assert!(page.contains("class=\"turn assistant\""), "{page}");
    }
}
