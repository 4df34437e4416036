mod hints;
mod invoked;
mod schemas;
mod servers;
mod suspended;
mod world_params;
mod worlds;

use std::fs;

use std::collections::BTreeSet;

use std::sync::Arc;

use ktsu_workflow::definition::Definition;

use super::*;
use ktsu_config::render;
use ktsu_ledger::event::plan::Plan;
use ktsu_ledger::event::plan::StepWork;
use ktsu_workflow::rules::DecisionRules;

/// A kit in a temporary folder.
pub(crate) fn kit(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

const PARENT: &str = "kind: workflow
name: parent
version: 1.2.3
env: [{name: URL, default: 'http://x'}, {name: KEY, secret: true}]
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - id: fetch-news
    agent: agents/a.agent.yaml@1.0.0
    for_each: {from: params.items, max_failures: 1}
    params: {n: '{{ item }}', k: '{{ env.KEY }}'}
  - id: shape
    condition: '{{ params.msg }}'
    transform:
      inputs: [{from: fetch-news}, 'step.fetch-news.results', '{{ params.x }}']
      ops: [{sort: {field: a-b, order: desc}}, {flatten: null}, {merge: [fetch-news]}]
    output: {schema: {type: object}}
  - id: call
    workflow: ./sub/child.workflow.yaml
    params: {x: '{{ shape.result }}'}
  - id: hook
    depends_on: [call]
    webhook:
      url: '{{ env.URL }}/a'
      body: {k: 1, v: '{{ step.shape.result }}'}
      retry: {attempts: 3, backoff: 1m30s}
output: {map: {r: '{{ hook.status_code }}'}}
";
const CHILD: &str = "kind: workflow
name: child
version: 0.1.0
visibility: sub-workflow
params: {schema: {required: [x], properties: {x: {}}}}
pipeline: []
";
const AGENT: &str = "name: a
version: 1.0.0
model: fast
params: {schema: {required: [n, k], properties: {n: {type: string}, k: {type: string, secret: true}}}}
prompt: {system: Sum up., user: '{{ params.n }}'}
output: {schema: {type: object, properties: {text: {type: string}}}}
";

fn sound() -> tempfile::TempDir {
    kit(&[
        ("kit.yaml", "name: demo\ndefault: parent\n"),
        ("workflows/parent.workflow.yaml", PARENT),
        ("workflows/sub/child.workflow.yaml", CHILD),
        ("agents/a.agent.yaml", AGENT),
        ("examples/default.json", "{}"),
    ])
}

#[test]
fn a_sound_kit_becomes_a_definition_with_every_edge() {
    let dir = sound();
    let kit = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(
        (kit.name.as_str(), kit.default_root()),
        ("demo", Some("parent"))
    );
    assert_eq!(kit.warnings.faults, []);
    assert!(kit.examples.contains_key("default"));
    let definition = &kit.workflows["parent"].definition;
    let root = definition.root().unwrap();
    let needs: Vec<_> = root.steps.iter().map(|step| step.needs.clone()).collect();
    assert_eq!(needs, [vec![], vec![0], vec![1], vec![1, 2]]);
    assert_eq!(definition.outline.root().dependants(1), [2, 3]);
    assert!(
        definition
            .workflow("workflows/sub/child.workflow.yaml")
            .is_some()
    );
    let StepWork::Transform(transform) = &root.plan.steps[1].work else {
        panic!()
    };
    assert_eq!(
        transform.inputs,
        ["step.fetch-news", "step.fetch-news.results", "params.x"]
    );
    let StepWork::Webhook(hook) = &root.plan.steps[3].work else {
        panic!()
    };
    let retry = hook.retry.as_ref().unwrap();
    assert_eq!(
        (retry.attempts, retry.backoff_ms, retry.on.len()),
        (3, 90_000, 3)
    );
    assert!(root.is_secret("KEY") && !root.is_secret("URL"));
}

#[test]
fn every_file_with_a_version_is_listed_by_path() {
    let dir = sound();
    let kit = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    let told: Vec<_> = kit
        .files
        .iter()
        .map(|file| (file.kind.text(), file.path.as_str(), file.version.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("agent", "agents/a.agent.yaml", "1.0.0"),
            ("workflow", "workflows/parent.workflow.yaml", "1.2.3"),
            ("workflow", "workflows/sub/child.workflow.yaml", "0.1.0"),
        ]
    );
    fs::remove_dir_all(dir.path().join("agents")).unwrap();
    assert_eq!(kit.source(&kit.files[0]), Some(AGENT));
}

#[test]
fn a_plan_holds_the_agents_it_reaches_and_steps_name_them() {
    let dir = sound();
    let spare = "name: spare\nversion: 1.0.0\nmodel: m\nprompt: {system: s}\noutput: {schema: {type: object}}\n";
    fs::write(dir.path().join("agents/spare.agent.yaml"), spare).unwrap();
    let kit = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    let definition = &kit.workflows["parent"].definition;
    let names: Vec<_> = definition.plan.agents.keys().collect();
    assert_eq!(names, ["agents/a.agent.yaml"]);
    let StepWork::Agent(call) = &definition.root().unwrap().plan.steps[0].work else {
        panic!()
    };
    assert_eq!(
        (call.agent.as_str(), call.file.as_str()),
        ("agents/a.agent.yaml@1.0.0", "agents/a.agent.yaml")
    );
    let agent = &definition.plan.agents["agents/a.agent.yaml"];
    assert_eq!(
        (agent.name.as_str(), agent.group.as_str(), agent.max_turns),
        ("a", "fast", 10)
    );
    assert_eq!(agent.prompt.user.as_deref(), Some("{{ params.n }}"));
    assert_eq!(agent.prompt.reflect, None);
}

#[test]
fn a_file_without_turns_or_version_gets_the_defaults() {
    let dir = sound();
    let text = AGENT
        .replace("version: 1.0.0\n", "max_turns: 0\n")
        .replace("model: fast", "model: fast\nservers: [{name: t}]");
    fs::write(dir.path().join("agents/a.agent.yaml"), text).unwrap();
    let central = "servers: [{name: t, version: 1.0.0, url: 'https://t'}]";
    fs::write(dir.path().join("servers.yaml"), central).unwrap();
    let parent = PARENT.replace("@1.0.0", "");
    fs::write(dir.path().join("workflows/parent.workflow.yaml"), parent).unwrap();
    let kit = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    let parent = &kit.workflows["parent"];
    let agent = &parent.definition.plan.agents["agents/a.agent.yaml"];
    assert_eq!((agent.max_turns, agent.version.as_str()), (10, "0.0.0"));
    let told: Vec<_> = kit.warnings.faults.iter().map(|f| f.code.text()).collect();
    assert_eq!(told, ["version-missing"]);
}

#[test]
fn a_mid_string_wildcard_in_an_allowlist_is_reported_with_the_entry() {
    let cases: serde_json::Value =
        serde_json::from_str(include_str!("../../tests/cases/ktsu-cases.json")).unwrap();
    let mut cases = cases.as_array().unwrap().iter();
    let case = cases
        .find(|case| case["name"] == "mid-string wildcard in an allowlist")
        .unwrap();
    let files: Vec<(&str, &str)> = case["input"]["files"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str().unwrap()))
        .collect();
    let faults = load(kit(&files).path()).unwrap_err();
    assert!(faults.has_errors());
    let wanted = case["expect"]["output_contains"][0].as_str().unwrap();
    assert!(faults.to_string().contains(wanted), "{faults}");
}

#[test]
fn a_definition_can_be_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Arc<Definition>>();
}

#[test]
fn a_transforms_schema_judges_its_value_unless_it_asks_for_the_object() {
    let text = "kind: workflow\nname: w\nversion: 1.0.0\npipeline:\n\
        \x20 - {id: a, transform: {}, output: {schema: {type: array}}}\n\
        \x20 - {id: b, transform: {}, output: {schema: {required: [result]}}}\n";
    let dir = kit(&[("workflows/w.workflow.yaml", text)]);
    let kit = load(dir.path()).unwrap();
    let steps = &kit.workflows["w"].definition.root().unwrap().steps;
    let output = |value| serde_json::json!({"result": value});
    assert_eq!(
        steps[0].check_output(&output(serde_json::json!([1])), DecisionRules::NEWEST),
        []
    );
    assert_eq!(
        steps[0]
            .check_output(&output(serde_json::json!({})), DecisionRules::NEWEST)
            .len(),
        1
    );
    assert_eq!(
        steps[1].check_output(&output(serde_json::json!({})), DecisionRules::NEWEST),
        []
    );
}

#[test]
fn a_plan_read_back_compiles_to_the_same_digest() {
    let dir = sound();
    let kit = load(dir.path()).unwrap();
    let first = &kit.workflows["parent"].definition;
    let plan: Plan = serde_json::from_str(first.json.as_str()).unwrap();
    let again = Definition::compile(plan).unwrap();
    assert_eq!((&again.digest, &again.json), (&first.digest, &first.json));
}

#[test]
fn a_plan_that_was_tampered_with_does_not_compile() {
    let dir = sound();
    let plan = load(dir.path()).unwrap().workflows["parent"]
        .definition
        .plan
        .clone();
    let root = plan.root.clone();
    let broken = |change: &dyn Fn(&mut ktsu_ledger::event::plan::WorkflowPlan)| {
        let mut plan = plan.clone();
        change(Arc::make_mut(plan.workflows.get_mut(&root).unwrap()));
        Definition::compile(plan).unwrap_err()[0].1.clone()
    };
    assert!(broken(&|w| w.steps[0].needs = vec![3]).contains("wait for one another"));
    assert!(broken(&|w| w.steps[1].needs.clear()).contains("not needed"));
    assert!(broken(&|w| w.steps[1].needs = vec![9, 0]).contains("no step 9"));
    assert!(broken(&|w| w.steps[1].id = "fetch-news".into()).contains("twice"));
    assert!(broken(&|w| w.steps[1].condition = Some("(".into())).contains("too early"));
    let mut cyclic = plan.clone();
    let caller = Arc::make_mut(cyclic.workflows.get_mut(&root).unwrap());
    if let StepWork::Workflow(child) = &mut caller.steps[2].work {
        child.workflow = root.clone();
    }
    assert!(
        Definition::compile(cyclic).unwrap_err()[0]
            .1
            .contains("call one another")
    );
}

#[test]
fn the_tree_shows_agents_and_children() {
    let dir = sound();
    let parent = PARENT.replace("agents/a", "../agents/./a");
    fs::write(dir.path().join("workflows/parent.workflow.yaml"), parent).unwrap();
    let kit = load(dir.path()).unwrap();
    let branch = tree::branch(&kit, &kit.workflows["parent"].definition.plan);
    assert_eq!(
        branch.text(termtree::GlyphPalette::new()),
        "workflows/parent.workflow.yaml (workflow)\n├── agents/a.agent.yaml@1.0.0 (agent)\n└── workflows/sub/child.workflow.yaml (workflow)\n"
    );
}

#[test]
fn an_absent_folder_and_an_empty_one_are_faults() {
    assert_eq!(
        load(Path::new("/nonexistent/x")).unwrap_err().faults[0].code,
        FaultCode::FileUnreadable
    );
    let empty = kit(&[("README.md", "")]);
    assert_eq!(
        load(empty.path()).unwrap_err().faults[0].code,
        FaultCode::NoWorkflows
    );
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_kit_is_not_followed() {
    let outside = kit(&[("child.workflow.yaml", CHILD)]);
    let parent = PARENT.replace("./sub/child", "child");
    let dir = kit(&[
        ("workflows/parent.workflow.yaml", parent.as_str()),
        ("agents/a.agent.yaml", AGENT),
    ]);
    std::os::unix::fs::symlink(
        outside.path().join("child.workflow.yaml"),
        dir.path().join("workflows/child.workflow.yaml"),
    )
    .unwrap();
    let faults = load(dir.path()).unwrap_err();
    assert!(
        faults
            .faults
            .iter()
            .any(|fault| fault.code == FaultCode::ChildOutsideKit),
        "{faults}"
    );
}

#[test]
fn a_file_over_one_mebibyte_is_refused() {
    let large = format!("# {}\n{CHILD}", "x".repeat(1 << 20));
    let dir = kit(&[("workflows/child.workflow.yaml", large.as_str())]);
    assert_eq!(
        load(dir.path()).unwrap_err().faults[0].code,
        FaultCode::FileTooLarge
    );
}

#[test]
fn every_fault_of_every_file_is_described_in_order() {
    let dir = kit(&[
        (
            "workflows/b.workflow.yaml",
            "kind: x\nname: b\nversion: 1.0.0\npipeline: []\nbogus: 1\n",
        ),
        (
            "workflows/a.workflow.yaml",
            "kind: workflow\nname: z\nversion: one\npipeline: {}\n",
        ),
    ]);
    let faults = load(dir.path()).unwrap_err();
    let told: Vec<_> = faults
        .faults
        .iter()
        .map(|f| (f.file.to_str().unwrap(), f.line, f.code.text()))
        .collect();
    assert_eq!(
        told,
        [
            ("workflows/a.workflow.yaml", 2, "name-mismatch"),
            ("workflows/a.workflow.yaml", 3, "bad-version"),
            ("workflows/a.workflow.yaml", 4, "wrong-type"),
            ("workflows/b.workflow.yaml", 1, "wrong-kind"),
            ("workflows/b.workflow.yaml", 5, "unknown-key"),
        ]
    );
}

/// A chain of workflows, each of which calls the next some times.
fn chain(files: usize, calls: usize) -> tempfile::TempDir {
    let text = |n: usize| {
        let mut text = format!("kind: workflow\nname: l{n}\nversion: 1.0.0\npipeline:");
        if n + 1 == files {
            text.push_str(" []");
        }
        let calls = if n + 1 == files { 0 } else { calls };
        for call in 0..calls {
            text.push_str(&format!(
                "\n  - {{id: s{call}, workflow: l{}.workflow.yaml}}",
                n + 1
            ));
        }
        (format!("workflows/l{n}.workflow.yaml"), text + "\n")
    };
    let texts: Vec<_> = (0..files).map(text).collect();
    let files: Vec<_> = texts
        .iter()
        .map(|(p, t)| (p.as_str(), t.as_str()))
        .collect();
    kit(&files)
}

#[test]
fn children_spread_as_far_as_a_run_can_be() {
    for (files, calls) in [(17, 1), (5, 9), (3, 99)] {
        assert!(load(chain(files, calls).path()).is_ok(), "{files} {calls}");
    }
    // Two to the power of seventy: nothing is counted one by one.
    for (files, calls, code) in [
        (18, 1, "children-too-deep"),
        (71, 2, "too-many-scopes"),
        (5, 10, "too-many-scopes"),
        (3, 100, "too-many-scopes"),
    ] {
        let faults = load(chain(files, calls).path()).unwrap_err();
        let told: Vec<_> = faults.faults.iter().map(|f| f.code.text()).collect();
        assert_eq!(told, [code], "{files} {calls}");
    }
}

#[test]
fn a_plan_that_spreads_too_far_does_not_compile() {
    for (fitting, files) in [(17, 18), (4, 5)] {
        let calls = if files == 5 { 10 } else { 1 };
        let kit = load(chain(fitting, calls).path()).unwrap();
        let mut plan = kit.workflows["l0"].definition.plan.clone();
        // The leaf calls a copy of itself, as often as the others do.
        let leaf = format!("workflows/l{}.workflow.yaml", fitting - 1);
        let mut caller = plan.workflows["workflows/l0.workflow.yaml"].clone();
        for step in &mut Arc::make_mut(&mut caller).steps {
            if let StepWork::Workflow(child) = &mut step.work {
                child.workflow = "copy".to_owned();
            }
        }
        let copy = plan.workflows.insert(leaf, caller).unwrap();
        plan.workflows.insert("copy".to_owned(), copy);
        let words = Definition::compile(plan).unwrap_err()[0].1.clone();
        assert!(words.contains("levels of children and"), "{words}");
    }
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    let codes: BTreeSet<String> = FaultCode::all()
        .iter()
        .map(|code| format!("{}.md", code.text()))
        .collect();
    let found: BTreeSet<String> = file_names(&pages).into_iter().collect();
    let missing: Vec<_> = codes.difference(&found).collect();
    assert!(missing.is_empty(), "no page: {missing:?}");
    // Pages of other parts' codes say so in their first line.
    for page in found.difference(&codes) {
        let text = fs::read_to_string(pages.join(page)).unwrap();
        assert!(
            !text.contains("(kit fault)"),
            "a page without a code: {page}"
        );
    }
}

#[test]
fn the_kits_of_this_repository_are_sound_and_nothing_is_to_be_warned_of() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kits");
    let kits = fs::read_dir(&folder).unwrap();
    let mut names = BTreeSet::new();
    for entry in kits.map(Result::unwrap) {
        let kit = load(&entry.path()).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(kit.warnings.faults, [], "{}", kit.name);
        let root = &kit.workflows[kit.default_root().unwrap()];
        // A kit of worlds is run with a goal.
        let needs_no_example = root.definition.worlds().is_some();
        assert!(needs_no_example || kit.examples.contains_key("default"));
        names.insert(kit.name);
    }
    for name in ["hello", "inbox", "intake", "triage"] {
        assert!(names.contains(name), "{name}");
    }
}

#[test]
fn the_examples_of_the_kits_fit_their_params() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kits");
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let kit = load(&entry.path()).unwrap();
        let root = &kit.workflows[kit.default_root().unwrap()];
        let root = root.definition.root().unwrap();
        let Some(example) = kit.examples.get("default") else {
            continue;
        };
        let text = fs::read_to_string(example).unwrap();
        let body = serde_json::from_str(&text).unwrap();
        let resolved =
            ktsu_workflow::params::resolve(root.params.as_ref(), body, DecisionRules::NEWEST);
        assert!(resolved.is_ok(), "{}: {resolved:?}", kit.name);
    }
}

proptest::proptest! {
    #![proptest_config(ktsu_campaign::config(64))]
    #[test]
    fn no_file_makes_loading_panic(cuts in proptest::collection::vec((0usize..900, "[a-z:{}\\[\\]'\"& \n-]{0,6}"), 0..4)) {
        let mut text = PARENT.to_owned();
        for (at, with) in cuts {
            let at = at.min(text.len());
            text.insert_str(at, &with);
        }
        let dir = kit(&[("workflows/parent.workflow.yaml", text.as_str())]);
        if let Err(faults) = load(dir.path()) {
            let _ = faults.to_string();
        }
    }

    #[test]
    fn no_agent_file_makes_loading_panic(cuts in proptest::collection::vec((0usize..300, "[a-z:{}é\\[\\]'\"&*|> \n.-]{0,6}"), 0..4)) {
        let mut text = AGENT.replace("Sum up.", "'é\n env:X {{ a }}'");
        for (at, with) in cuts {
            let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            text.insert_str(at, &with);
        }
        let files = [
            ("workflows/parent.workflow.yaml", PARENT),
            ("workflows/sub/child.workflow.yaml", CHILD),
            ("agents/a.agent.yaml", text.as_str()),
        ];
        if let Err(faults) = load(kit(&files).path()) {
            let _ = faults.to_string();
        }
    }
}

#[test]
fn of_very_many_faults_the_first_are_shown() {
    let items = "  - 1\n".repeat(4000);
    let text = format!("kind: workflow\nname: w\nversion: 1.0.0\npipeline:\n{items}");
    let dir = kit(&[("workflows/w.workflow.yaml", &text)]);
    let faults = load(dir.path()).unwrap_err();
    assert_eq!(faults.faults.len(), 4000);
    let shown = render::text(&faults, false);
    assert_eq!(shown.matches("error[").count(), render::MAX_SHOWN);
    assert!(shown.contains("and 3900 more"), "{shown}");
}

#[test]
fn a_file_that_several_workflows_reach_is_held_once() {
    let other = PARENT.replace("name: parent", "name: other");
    let dir = sound();
    fs::write(dir.path().join("workflows/other.workflow.yaml"), other).unwrap();
    let kit = load(dir.path()).unwrap();
    let held = |name: &str| &kit.workflows[name].definition;
    let (parent, other) = (held("parent"), held("other"));
    let child = "workflows/sub/child.workflow.yaml";
    let held = &parent.plan.workflows[child];
    assert!(Arc::ptr_eq(held, &other.plan.workflows[child]));
    assert!(Arc::ptr_eq(
        held,
        &parent.outline.workflow(child).unwrap().plan
    ));
    assert!(Arc::ptr_eq(held, &parent.workflow(child).unwrap().plan));
    let agent = "agents/a.agent.yaml";
    let file = &parent.plan.agents[agent];
    assert!(Arc::ptr_eq(file, &other.plan.agents[agent]));
    assert!(Arc::ptr_eq(file, &parent.agents[agent].file));
}

#[test]
fn many_files_have_the_faults_of_each_in_the_order_of_their_names() {
    let broken = |name: &str| {
        format!(
            "kind: workflow\nname: {name}\nversion: 1.0.0\npipeline:\n  - {{id: a, transform: \
             {{inputs: [{{from: params}}], ops: [{{map: {{expr: '{{a: ('}}}}]}}}}\n  - {{id: b}}\n"
        )
    };
    let files: Vec<(String, String)> = (10..60)
        .map(|at| {
            let name = format!("w{at}");
            (format!("workflows/{name}.workflow.yaml"), broken(&name))
        })
        .collect();
    let borrowed = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()));
    let dir = kit(&borrowed.collect::<Vec<_>>());
    let faults = load(dir.path()).unwrap_err();
    let found: Vec<String> = faults
        .faults
        .iter()
        .map(|fault| format!("{} {}", fault.file.display(), fault.code.text()))
        .collect();
    let wanted = files.iter().flat_map(|(path, _)| {
        ["bad-expression", "no-primitive"].map(|code| format!("{path} {code}"))
    });
    assert_eq!(found, wanted.collect::<Vec<_>>());
}
