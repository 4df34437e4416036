//! Loads the files of a kit, one after another, until no new file is referred to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ktsu_ledger::event::plan::{ReviewPolicy, Visibility};
use ktsu_ledger::id::is_name;

use super::agent;
use super::definitions::Plans;
use super::files::{
    AGENT_SUFFIX, CENTRAL, FileKind, GATEWAY, KitFile, SERVER_SUFFIX, WORKFLOW_SUFFIX,
    WORLD_SUFFIX, file_names,
};
use super::kit::{Kit, folder_name};
use super::loader::{FileRead, Loader};
use super::parallel;
use super::person_waits;
use super::read::{self, KitReader};
use super::server;
use super::servers::{self, ServerUse};
use super::shape::kit::KIT as KIT_SHAPE;
use super::types;
use super::workflow;
use super::world;
use super::{builtin, calls, reference, server_registry};
use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_config::yaml::{self, SourceSpan};

/// The settings in `kit.yaml`.
#[derive(Default)]
pub(super) struct Settings {
    name: Option<String>,
    pub(super) default: Option<(String, SourceSpan)>,
}

impl Settings {
    /// The name of the kit: its own, or that of its folder.
    pub(super) fn name(&self, root: &Path) -> String {
        self.name.clone().unwrap_or_else(|| folder_name(root))
    }
}

const KIT: &str = "kit.yaml";

impl Loader {
    pub(super) fn settings(&mut self) -> Settings {
        if !self.root.join(KIT).exists() {
            return Settings::default();
        }
        self.read(KIT, read_settings).unwrap_or_default()
    }

    /// The workflow files of the kit's own folder.
    pub(super) fn top_level(&mut self) -> Vec<String> {
        let names = self.file_names("workflows");
        let names = names
            .into_iter()
            .filter(|name| name.ends_with(WORKFLOW_SUFFIX));
        let paths: Vec<String> = names.map(|name| format!("workflows/{name}")).collect();
        if paths.is_empty() && self.world_files().is_empty() {
            let words = format!("there is no workflows/NAME{WORKFLOW_SUFFIX}");
            let fault = Fault::new(FaultCode::NoWorkflows, SourceSpan::default(), words);
            self.fault("workflows", fault);
        }
        paths
    }

    /// Reads some workflows at once, and checks the types of those that call nothing.
    pub(super) fn read_workflows(&mut self, paths: &[String]) {
        let read = parallel::map(paths, |path| {
            let mut file = FileRead::new(&self.root, path, workflow::read);
            let parts = (&file.text, &file.made, file.node.take());
            let (Some(text), Some(draft), Some(node)) = parts else {
                return (file, None);
            };
            let checked = types::check_alone(path, text, draft, &node);
            file.node = checked.is_none().then_some(node);
            (file, checked)
        });
        for (path, (file, checked)) in paths.iter().zip(read) {
            let draft = self.take(path, file);
            self.drafts.insert(path.clone(), draft);
            self.checked
                .extend(checked.map(|checked| (path.clone(), checked)));
        }
    }

    /// The paths of the world files.
    fn world_files(&self) -> Vec<String> {
        let names = self.file_names("worlds").into_iter();
        let names = names.filter(|name| name.ends_with(WORLD_SUFFIX));
        names.map(|name| format!("worlds/{name}")).collect()
    }

    /// Reads the worlds, and every workflow that a responder runs.
    pub(super) fn read_worlds(&mut self) {
        let paths = self.world_files();
        for (path, draft) in paths.iter().zip(self.read_all(&paths, world::read)) {
            let responders = draft.iter().flat_map(|draft| &draft.responders);
            let runs = responders.enumerate().filter_map(|(position, responder)| {
                let reference = responder.run.as_ref()?.reference();
                let found = reference::resolve(&self.root, path, &reference);
                Some((position, found))
            });
            let runs: Vec<_> = runs.collect();
            for (position, run) in runs {
                match run {
                    Ok(run) => {
                        self.read_workflow(&run);
                        self.runs.insert((path.clone(), position), run);
                    }
                    Err(fault) => self.fault(path, fault),
                }
            }
            self.worlds.insert(path.clone(), draft);
        }
    }

    fn read_workflow(&mut self, path: &str) {
        if self.drafts.contains_key(path) {
            return;
        }
        let draft = self.read(path, workflow::read);
        self.drafts.insert(path.to_owned(), draft);
    }

    /// Reads every workflow that another one names, until there are no new ones.
    pub(super) fn follow_children(&mut self) {
        let mut waiting: Vec<String> = self.drafts.keys().cloned().collect();
        while let Some(parent) = waiting.pop() {
            let Some(Some(draft)) = self.drafts.get(&parent) else {
                continue;
            };
            let steps = draft.steps.iter().enumerate();
            let named: Vec<_> = steps
                .flat_map(|(position, step)| {
                    let own = step.child.iter().map(|child| (None, child));
                    let invoked = step.invoked.iter();
                    let invoked = invoked.map(|(name, child)| (Some(name.clone()), child));
                    own.chain(invoked)
                        .map(move |(name, child)| (position, name, child))
                })
                .map(|(position, name, child)| {
                    let path = reference::resolve(&self.root, &parent, &child.reference());
                    (position, name, path)
                })
                .collect();
            for (position, name, path) in named {
                match path {
                    Ok(path) => {
                        if !self.drafts.contains_key(&path) {
                            self.read_workflow(&path);
                            waiting.push(path.clone());
                        }
                        match name {
                            None => self.children.insert((parent.clone(), position), path),
                            Some(name) => {
                                self.invoked.insert((parent.clone(), position, name), path)
                            }
                        };
                    }
                    Err(fault) => self.fault(&parent, fault),
                }
            }
        }
    }

    /// Reads the agents of the kit's own folder, and every one that a step names.
    pub(super) fn read_agents(&mut self) {
        let names = self.file_names("agents");
        let names = names.iter().filter(|name| name.ends_with(AGENT_SUFFIX));
        let paths: Vec<String> = names.map(|name| format!("agents/{name}")).collect();
        for (path, draft) in paths.iter().zip(self.read_all(&paths, agent::read)) {
            self.agents.insert(path.clone(), draft);
        }
        let mut found = Vec::new();
        for (path, draft) in &self.drafts {
            let steps = draft
                .iter()
                .flat_map(|draft| draft.steps.iter().enumerate());
            for (position, step) in steps {
                if let Some(call) = &step.agent {
                    let agent = calls::resolve(&self.root, path, call);
                    found.push(((path.clone(), position), agent));
                }
            }
        }
        for (call, agent) in found {
            match agent {
                Ok(path) => {
                    self.read_agent(&path);
                    self.calls.insert(call, path);
                }
                Err(fault) => self.fault(&call.0, fault),
            }
        }
    }

    fn read_agent(&mut self, path: &str) {
        if self.agents.contains_key(path) {
            return;
        }
        let draft = self.read(path, agent::read);
        self.agents.insert(path.to_owned(), draft);
    }

    /// Reads the central list, the servers of the kit's own folder, and every one that an agent
    /// names.
    pub(super) fn read_servers(&mut self) {
        let central = self.read_central();
        let names = file_names(&self.root.join("servers"));
        for name in names.iter().filter(|name| name.ends_with(SERVER_SUFFIX)) {
            self.read_server(&format!("servers/{name}"));
        }
        let mut found = Vec::new();
        for (path, draft) in &self.agents {
            let calls = draft.iter().flat_map(|draft| draft.servers.iter());
            for (position, call) in calls.enumerate() {
                let server = servers::resolve(&self.root, path, call, central.as_ref());
                found.push(((path.clone(), position), server));
            }
        }
        for (entry, server) in found {
            match server {
                Ok(Some(key)) => {
                    if !key.starts_with(CENTRAL) {
                        self.read_server(&key);
                    }
                    self.uses.insert(entry, key);
                }
                Ok(None) => {}
                Err(fault) => self.fault(&entry.0, fault),
            }
        }
    }

    fn read_server(&mut self, path: &str) {
        if self.servers.contains_key(path) {
            return;
        }
        let mut draft = self.read(path, server::read);
        if let Some(draft) = draft.as_mut().filter(|_| builtin::is_builtin(path)) {
            // It is wherever the orchestrator is, under its whole name.
            draft.server.name = reference::split(path).0.to_owned();
            draft.server.url = String::new();
        }
        self.servers.insert(path.to_owned(), draft);
    }

    /// The names of the central list; nothing if it cannot be read.
    fn read_central(&mut self) -> Option<BTreeSet<String>> {
        if !self.root.join(CENTRAL).exists() {
            return Some(BTreeSet::new());
        }
        let listed = self.read(CENTRAL, server_registry::read)?;
        let servers = listed.servers.into_iter();
        let servers = servers.map(|(name, draft)| (servers::central_key(&name), draft));
        self.servers.extend(servers);
        listed.whole.then(|| {
            let keys = self.servers.keys();
            keys.filter_map(|key| Some(key.strip_prefix(CENTRAL)?.strip_prefix('#')?.to_owned()))
                .collect()
        })
    }

    pub(super) fn check_default(&mut self, default: Option<&(String, SourceSpan)>) {
        let Some((name, place)) = default else {
            return;
        };
        let path = format!("workflows/{name}{WORKFLOW_SUFFIX}");
        let world = self
            .worlds
            .contains_key(&format!("worlds/{name}{WORLD_SUFFIX}"));
        let visibility = match self.drafts.get(&path) {
            Some(Some(draft)) => draft.plan.visibility,
            // Its own faults were reported already.
            Some(None) => return,
            None if world => return,
            None => Visibility::SubWorkflow,
        };
        if visibility != Visibility::Root {
            let words =
                format!("the default {name:?} is neither a root workflow nor a world of this kit");
            self.fault(KIT, Fault::new(FaultCode::UnknownDefault, *place, words));
        }
    }

    /// Others read the gateway's file; that it is one of the kit is for the kit to say.
    pub(super) fn check_gateway(&mut self) {
        if !read::is_within(&self.root, &self.root.join(GATEWAY)) {
            let words = "the file is a link that leads out of the kit";
            let fault = Fault::new(FaultCode::ChildOutsideKit, SourceSpan::default(), words);
            self.fault(GATEWAY, fault);
        }
    }

    /// The names of the files in a folder of the kit.
    fn file_names(&self, folder: &str) -> Vec<String> {
        let path = self.root.join(folder);
        match read::is_within(&self.root, &path) {
            true => file_names(&path),
            false => Vec::new(),
        }
    }

    pub(super) fn finish(mut self, settings: Settings, top: &[String]) -> Result<Kit, Faults> {
        let mut workflows = BTreeMap::new();
        let uses = self.server_uses();
        let reviews = self.reviews();
        let waits = person_waits::of(&self);
        let files = self.files();
        if !self.faults.has_errors() {
            let plans = Plans::take(&mut self, &uses);
            let top: Vec<String> = top.iter().cloned().chain(plans.worlds()).collect();
            for (path, compiled) in top.iter().zip(plans.compile(&top)) {
                match compiled {
                    Ok(one) => workflows.extend(one.map(|one| (invoke_name(path).to_owned(), one))),
                    Err(faults) => faults.into_iter().for_each(|fault| self.faults.add(fault)),
                }
            }
        }
        self.faults.sort();
        if self.faults.has_errors() {
            return Err(self.faults);
        }
        let servers = std::mem::take(&mut self.servers).into_iter();
        let servers = servers.filter_map(|(key, draft)| Some((key, draft?.server)));
        let examples = self.file_names("examples").into_iter().filter_map(|file| {
            let name = file.strip_suffix(".json")?.to_owned();
            let path = self.root.join("examples").join(&file);
            read::is_within(&self.root, &path).then_some((name, path))
        });
        let examples: BTreeMap<_, _> = examples.collect();
        Ok(Kit {
            name: settings.name(&self.root),
            default_workflow: settings.default.map(|(name, _)| name),
            examples,
            files,
            servers: servers.collect(),
            uses,
            reviews,
            waits,
            lock: None,
            workflows,
            warnings: self.faults,
            root: self.root,
        })
    }

    /// Everything with a version, by path.
    fn files(&self) -> Vec<KitFile> {
        let file = |kind, path: &String, version: &String| KitFile {
            path: path.clone(),
            kind,
            version: version.clone(),
        };
        let workflows = self.drafts.iter().filter_map(|(path, draft)| {
            let version = &draft.as_ref()?.plan.version;
            Some(file(FileKind::Workflow, path, version))
        });
        let agents = self.agents.iter().filter_map(|(path, draft)| {
            let version = &draft.as_ref()?.plan.version;
            Some(file(FileKind::Agent, path, version))
        });
        let servers = self.servers.iter().filter_map(|(path, draft)| {
            let version = &draft.as_ref()?.server.version;
            Some(file(FileKind::Server, path, version))
        });
        let worlds = self.worlds.iter().filter_map(|(path, draft)| {
            let version = &draft.as_ref()?.plan.version;
            Some(file(FileKind::World, path, version))
        });
        let all = workflows.chain(agents).chain(servers).chain(worlds);
        let mut files: Vec<KitFile> = all.collect();
        files.sort();
        files
    }

    /// The review policies of agents, with their places in the files.
    fn reviews(&self) -> BTreeMap<String, (SourceSpan, ReviewPolicy)> {
        let agents = self.agents.iter();
        let reviewed = agents.filter_map(|(path, draft)| {
            let (place, policy) = draft.as_ref()?.review()?;
            Some((path.clone(), (place, policy.clone())))
        });
        reviewed.collect()
    }

    /// The servers of every agent that has some, in file order.
    fn server_uses(&self) -> BTreeMap<String, Vec<ServerUse>> {
        let mut uses: BTreeMap<String, Vec<ServerUse>> = BTreeMap::new();
        for ((path, position), key) in &self.uses {
            let agent = self.agents.get(path).and_then(Option::as_ref);
            let call = agent.and_then(|agent| agent.servers.get(*position));
            let server = self.servers.get(key).and_then(Option::as_ref);
            if let Some((call, server)) = call.zip(server) {
                let one = ServerUse::new(call, key, &server.server);
                uses.entry(path.clone()).or_default().push(one);
            }
        }
        uses
    }
}

fn invoke_name(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    let workflow = file.strip_suffix(WORKFLOW_SUFFIX);
    workflow.unwrap_or_else(|| world::name_of(path))
}

fn read_settings(reader: &mut KitReader<'_>, node: &yaml::YamlNode) -> Option<Settings> {
    let fields = reader.shaped(node, &KIT_SHAPE)?;
    let name = fields.read("name", |node| {
        let name = reader.string(node, "name")?;
        if !is_name(name) {
            return reader.bad_value(node, format!("{name:?} is not a name"));
        }
        Some(name.to_owned())
    });
    let default = fields.read("default", |node| {
        let name = reader.string(node, "default")?;
        Some((name.to_owned(), node.place))
    });
    if let Some(node) = fields.get("version") {
        reader.version(node);
    }
    Some(Settings { name, default })
}
