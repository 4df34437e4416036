//! Runs that load worlds: frames a second through five responders, and whether the size of a world
//! slows its frames, or how long a chain of causes takes to follow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ktsu_ledger::event::ContinueReason;
use ktsu_ledger::event::plan::Plan;
use ktsu_ledger::event::plan::world::WorldPlan;
use ktsu_ledger::{Frame, Record};
use ktsu_projections::world::activity::is_world_frame;
use ktsu_projections::{Lineage, RunState};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::turn;
use serde_json::{Value, json};

use crate::plans::{self, Recorded};
use crate::table::{Row, Table, median, ms, per_second, thousands};
use crate::{Effort, disk, engine};

/// What durable runs of a world must reach.
const BAR: f64 = 40_000.0;

/// Batches of the goal, and items of a batch: with what is made of the items, 10,001 objects.
const BATCHES: u32 = 100;
const ITEMS: u32 = 33;

fn responder(name: &str, on: &str, kind: &str, more: Value) -> Value {
    let mut responder = json!({"name": name, "on": [on], "type": [kind]});
    if let (Value::Object(members), Value::Object(more)) = (&mut responder, more) {
        members.extend(more);
    }
    responder
}

fn object(kind: &str, data: Value) -> Value {
    json!({"make": {"object": {"type": kind, "data": data}}})
}

/// A definition without steps that loads one world.
fn definition(goal: Value, responders: Value) -> Arc<Definition> {
    let mut plan: Plan = plans::plan(plans::NAME, Vec::new());
    let types = ["Root", "Batch", "Item", "Note", "Tag"].map(|name| (name.to_owned(), json!({})));
    let world = json!({
        "name": "world", "version": "1.0.0",
        "budget": {"max_events": 1_000_000, "max_llm_cost_micro_usd": 1,
            "max_recursion_depth": 1_000_000, "max_wall_ms": 3_600_000},
        "goal": [goal],
        "objects": serde_json::Map::from_iter(types),
        "relations": {"about": {"from": ["Note"], "to": ["Item"]}},
        "responders": responders,
    });
    let world: WorldPlan = serde_json::from_value(world).unwrap();
    plan.worlds
        .insert("worlds/world.world.yaml".to_owned(), Arc::new(world));
    Arc::new(Definition::compile(plan).unwrap())
}

/// Five responders, which make 10,001 objects and 3,300 relations, and patch 3,300 objects.
fn five_responders() -> Arc<Definition> {
    let numbers = |count: u32| json!({"items": Vec::from_iter((0..count).map(|n| n.to_string()))});
    let item_of = json!([{"find": {"object": "{{ relation.target_id }}"}, "name": "about"}]);
    let seen = json!([{"name": "seen", "find": {"count": {"type": "Item",
        "where": {"batch": {"equals": "{{ object.data.batch }}"}}}}}]);
    let mut note = object(
        "Note",
        json!({"of": "{{ object.data.n }}", "seen": "{{ seen }}"}),
    );
    note["as"] = json!("note");
    let about = json!({"make": {"relation":
        {"type": "about", "from": "{{ note.id }}", "to": "{{ object.id }}"}}});
    let noted = json!({"make": {"patch": {"id": "{{ about.id }}", "data": {"noted": true}}}});
    let responders = json!([
        responder(
            "batches",
            "object.created",
            "Root",
            json!({"for_each": numbers(BATCHES),
            "work": {"emit": [object("Batch", json!({"n": "{{ item }}"}))]}})
        ),
        responder(
            "items",
            "object.created",
            "Batch",
            json!({"for_each": numbers(ITEMS),
            "work": {"emit": [object("Item",
                json!({"n": "{{ item }}", "batch": "{{ object.data.n }}"}))]}})
        ),
        responder(
            "notes",
            "object.created",
            "Item",
            json!({"with": seen, "work": {"emit": [note, about]}})
        ),
        responder(
            "tags",
            "object.created",
            "Note",
            json!({"work": {"emit": [object("Tag", json!({"of": "{{ object.data.of }}"}))]}})
        ),
        responder(
            "noted",
            "relation.created",
            "about",
            json!({"with": item_of, "when": "about", "work": {"emit": [noted]}})
        ),
    ]);
    definition(object("Root", json!({"text": "{{ goal }}"})), responders)
}

fn goal() -> Value {
    json!({"goal": "bench"})
}

/// Durable, beside the bare writer and beside a fold alone. World frames alone are counted.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let definition = five_responders();
    let recorded = plans::record_with(&definition, goal());
    let frames: Vec<&Frame> = recorded.sealed.iter().map(|one| &one.frame).collect();
    let of_world = frames.iter().filter(|frame| is_world_frame(frame)).count();
    let head = recorded.state.responding().unwrap().head();
    assert!(head.object_count() > 10_000, "{}", head.object_count());
    let share = of_world as f64 / frames.len() as f64;
    let folder = disk::folder();
    let rounds = effort.of(9, 3);
    let (mut times, commits) = engine::runtime().block_on(async {
        let kit = plans::kit(&[("world", &definition)]);
        let engine = engine::open(folder.path(), kit).await;
        engine::reply_to(&engine, "world", &goal()).await;
        let before = engine.appender().counters();
        let mut times = Vec::new();
        for _ in 0..rounds {
            let started = Instant::now();
            engine::reply_to(&engine, "world", &goal()).await;
            times.push(started.elapsed());
        }
        let after = engine.appender().counters();
        engine.close().await.unwrap();
        let group = (after.frames - before.frames) / (after.commits - before.commits).max(1);
        (times, usize::try_from(group).unwrap())
    });
    let durable = per_second(of_world, median(&mut times));
    let bodies = engine::bodies(folder.path(), 200_000);
    let bare = share * disk::grouped(&bodies, commits, Duration::from_secs(effort.of(4, 1)));
    table.add(Row {
        what: format!(
            "durable world frames of one run through five responders, {} objects, {commits} frames a \
             commit, median of {rounds}",
            thousands(head.object_count() as f64)
        ),
        figure: format!("{} world frames/s", thousands(durable)),
        bare: format!("{} of the same frames/s", thousands(bare)),
        ratio: format!("{:.2}", durable / bare),
        bar: format!("≥ {}/s", thousands(BAR)),
        met: Some(durable >= BAR),
    });
    let folded = share * fold(&definition, &recorded);
    table.add(Row {
        what: "the same against a fold alone, stored bytes in memory, median of 9".to_owned(),
        figure: format!("{} world frames/s", thousands(durable)),
        bare: format!("{} world frames/s", thousands(folded)),
        ratio: format!("{:.2}", durable / folded),
        bar: String::new(),
        met: None,
    });
}

/// Frames a second that are parsed and applied.
fn fold(definition: &Definition, recorded: &Recorded) -> f64 {
    let (first, rest) = recorded.sealed.split_first().unwrap();
    let records: Vec<&Record> = rest.iter().map(|sealed| &sealed.record).collect();
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            let started = Instant::now();
            let outline = Arc::clone(&definition.outline);
            let mut state = RunState::begin(&first.frame, outline).unwrap();
            for record in &records {
                state.apply(&record.decode_bare().unwrap()).unwrap();
            }
            std::hint::black_box(state);
            started.elapsed()
        })
        .collect();
    per_second(records.len(), median(&mut times))
}

/// A chain: each item makes the next one, after three look-ups among all of them.
fn chain() -> Arc<Definition> {
    let find = |kind: &str, field: &str| json!({kind: {"type": "Item", "where": {field: {"equals": "{{ object.data.n }}"}}}});
    let with = json!([
        {"name": "same", "find": find("count", "n")},
        {"name": "first", "find": find("first", "n")},
        {"name": "all", "find": find("objects", "n")},
    ]);
    let next = object(
        "Item",
        json!({"n": "{{ object.id }}", "same": "{{ same }}"}),
    );
    let grows = json!({"with": with, "when": "first && all", "work": {"emit": [next]}});
    let responders = json!([responder("grows", "object.created", "Item", grows)]);
    definition(object("Item", json!({"n": "{{ goal }}"})), responders)
}

/// Object 10,000 and object 100 of the same world, one of each in turn.
pub(crate) fn late_frames(_: Effort, table: &mut Table) {
    const SAMPLES: usize = 200;
    const MOST: f64 = 1.3;
    let definition = chain();
    // A turn is the frame that continues it, the firing, and the object.
    let at = |objects: usize| plans::record_turns(&definition, goal(), objects * 3);
    let (mut early, mut late) = (at(100), at(10_000));
    let (mut early_times, mut late_times) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        early_times.push(one_turn(&definition, &mut early));
        late_times.push(one_turn(&definition, &mut late));
    }
    let objects = |recorded: &Recorded| recorded.state.responding().unwrap().head().object_count();
    assert!(objects(&early) < 400 && objects(&late) > 10_000);
    let (early, late) = (median(&mut early_times), median(&mut late_times));
    let ratio = late.as_secs_f64() / early.as_secs_f64();
    let micros = |time: Duration| format!("{:.1} µs", time.as_secs_f64() * 1e6);
    table.add(Row {
        what: format!(
            "object 10,000 of a world against object 100, with its firing and three look-ups, median \
             of {SAMPLES}, no store"
        ),
        figure: micros(late),
        bare: format!("object 100: {}", micros(early)),
        ratio: format!("{ratio:.2}"),
        bar: format!("≤ {MOST}"),
        met: Some(ratio <= MOST),
    });
}

/// The causes of the last object of a chain of 50,000, each of which made the next one.
pub(crate) fn causes(_: Effort, table: &mut Table) {
    const OBJECTS: usize = 50_000;
    const MOST: Duration = Duration::from_secs(1);
    let recorded = plans::record_turns(&chain(), goal(), (OBJECTS + 10) * 3);
    let frames: Vec<&Frame> = recorded.sealed.iter().map(|one| &one.frame).collect();
    let last = frames
        .iter()
        .rposition(|frame| is_world_frame(frame))
        .unwrap() as u64;
    let mut reached = 0;
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            let started = Instant::now();
            let lineage = Lineage::from_frames(frames.iter().copied());
            reached = std::hint::black_box(lineage.ancestors(last)).len();
            started.elapsed()
        })
        .collect();
    assert!(reached > OBJECTS, "{reached}");
    let time = median(&mut times);
    table.add(Row {
        what: format!(
            "trace of the last object of a world of {} frames ({} causes), frames in memory, median of 9",
            thousands(frames.len() as f64),
            thousands(reached as f64)
        ),
        figure: ms(time),
        bare: String::new(),
        ratio: String::new(),
        bar: format!("≤ {}", ms(MOST)),
        met: Some(time <= MOST),
    });
}

fn one_turn(definition: &Definition, recorded: &mut Recorded) -> Duration {
    let input = turn::continuation(&recorded.state, ContinueReason::Bound);
    let at = recorded.state.at();
    let started = Instant::now();
    let taken = turn::apply_input(definition, &mut recorded.state, input, at, &recorded.memo);
    let time = started.elapsed();
    assert_eq!(taken.unwrap().sealed.len(), 3);
    time
}
