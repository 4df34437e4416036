//! Reads the workspace and the services of a suite.

use std::collections::BTreeSet;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields};
use ktsu_config::yaml::{YamlKey, YamlNode, YamlValue};
use ktsu_ledger::id::is_name;

use crate::database_reader::{self, member};
use crate::field_reader;
use crate::http_mock_reader;
use crate::shapes::{TOOL_SERVICE, WORKSPACE_FOLDER};
use crate::spec::{CheckKind, EvalSpec};
use crate::suite::{EvalSubject, Suite};
use crate::surroundings::{
    MAX_SERVICES, PARAMS, PROGRAM, SERVICES, SuiteServices, SuiteWorkspace, ToolService, WORKSPACE,
    unknown_reference,
};

/// The type of services that offer tools.
const MCP: &str = "mcp";

/// The type of services that reply to HTTP.
const HTTP_MOCK: &str = "http_mock";

/// The most bytes of a command, and of an argument of a program.
const MAX_ARGUMENT: usize = 64 << 10;

/// The most arguments of a program.
const MAX_ARGUMENTS: usize = 100;

/// The folder of each run.
pub(crate) fn workspace(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<SuiteWorkspace> {
    let fields = field_reader::shaped(reader, node, &WORKSPACE_FOLDER)?;
    let setup = fields.read("setup", |node| argument(reader, node, "setup"));
    Some(SuiteWorkspace {
        from: fields.read("from", |node| folder(reader, node)),
        setup,
        limits: field_reader::limits(reader, &fields)?,
    })
}

/// The programs beside each run. Those of types that are not supported yet are only named.
pub(crate) fn services(reader: &mut ConfigReader<'_>, node: &YamlNode) -> SuiteServices {
    let mut services = SuiteServices::default();
    reader.report_nested_duplicates(node);
    let members = match &node.data {
        YamlValue::List(items) => named(reader, items),
        YamlValue::Map(members) => members.clone(),
        _ => {
            reader.open_map(node, "services");
            return services;
        }
    };
    if members.len() > MAX_SERVICES {
        let words = format!("there are more than {MAX_SERVICES} services");
        reader.fault(Fault::new(FaultCode::BadValue, node.place, words));
        return services;
    }
    let is_list = matches!(node.data, YamlValue::List(_));
    let (mut replaced, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (key, node) in &members {
        if !names.insert(&key.text) && is_list {
            let words = format!("there are two services {:?}", key.text);
            reader.fault(Fault::new(FaultCode::BadValue, key.place, words));
        }
        if !is_name(&key.text) {
            let words = format!("{:?} is not a name of a service", key.text);
            reader.fault(Fault::new(FaultCode::BadValue, key.place, words));
            continue;
        }
        if database_reader::is_database(node) {
            if let Some(database) = database_reader::service(reader, node) {
                services.databases.insert(key.text.clone(), database);
            }
            continue;
        }
        let kind = kind_of(node).unwrap_or_default();
        if kind == HTTP_MOCK {
            if let Some(mock) = http_mock_reader::service(reader, node) {
                for variable in &mock.variables {
                    if !replaced.insert(format!("env.{variable}")) {
                        let words =
                            format!("two services have their URL in the variable {variable}");
                        reader.fault(Fault::new(FaultCode::BadValue, node.place, words));
                    }
                }
                services.mocks.insert(key.text.clone(), mock);
            }
            continue;
        }
        if kind != MCP {
            let first = || (key.text.clone(), kind);
            services.later = services.later.or_else(|| Some(first()));
            continue;
        }
        let Some(service) = tool_service(reader, node, &key.text) else {
            continue;
        };
        for server in &service.servers {
            if !replaced.insert(server.clone()) {
                let words = format!("two services are used in place of the tool server {server}");
                reader.fault(Fault::new(FaultCode::BadValue, node.place, words));
            }
        }
        services.tools.insert(key.text.clone(), service);
    }
    services
}

/// The services of a list, as seed 003 has it: each with its name within it.
fn named(reader: &mut ConfigReader<'_>, items: &[YamlNode]) -> Vec<(YamlKey, YamlNode)> {
    let mut services = Vec::new();
    for item in items {
        let Some(fields) = reader.open_map(item, "the service") else {
            continue;
        };
        let Some(name) = reader.required(&fields, "name", "the service") else {
            continue;
        };
        let (Some(text), place) = (reader.string(name, "name"), name.place) else {
            continue;
        };
        let (text, mut service) = (text.to_owned(), item.clone());
        if let YamlValue::Map(members) = &mut service.data {
            members.retain(|(key, _)| key.text != "name");
        }
        services.push((YamlKey { place, text }, service));
    }
    services
}

fn kind_of(node: &YamlNode) -> Option<String> {
    let YamlValue::Map(members) = &node.data else {
        return None;
    };
    let (_, kind) = members.iter().find(|(key, _)| key.text == "type")?;
    match &kind.data {
        YamlValue::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn tool_service(reader: &mut ConfigReader<'_>, node: &YamlNode, name: &str) -> Option<ToolService> {
    let fields = field_reader::shaped(reader, node, &TOOL_SERVICE)?;
    let list = |reader: &mut ConfigReader<'_>, name: &str| {
        let node = fields.get(name)?;
        let YamlValue::List(items) = &node.data else {
            return None;
        };
        if items.is_empty() || items.len() > MAX_ARGUMENTS {
            let words = format!("{name} has 1 to {MAX_ARGUMENTS} entries");
            return reader.bad_value(node, words);
        }
        let items = items.iter().map(|item| argument(reader, item, name));
        items.collect::<Option<Vec<String>>>()
    };
    let servers = match fields.get("servers") {
        Some(_) => list(reader, "servers")?,
        None => vec![name.to_owned()],
    };
    Some(ToolService {
        command: list(reader, "command")?,
        from: fields.read("from", |node| folder(reader, node)),
        limits: field_reader::limits(reader, &fields)?,
        servers,
    })
}

fn argument(reader: &mut ConfigReader<'_>, node: &YamlNode, name: &str) -> Option<String> {
    let text = reader.string(node, name)?;
    if text.trim().is_empty() || text.len() > MAX_ARGUMENT || text.contains('\0') {
        let words = format!("{name} needs 1 to {MAX_ARGUMENT} bytes of text, without a null byte");
        return reader.bad_value(node, words);
    }
    Some(text.to_owned())
}

fn folder(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<String> {
    let path = reader.string(node, "from")?;
    if path.is_empty() || path.starts_with('/') || path.contains(['\0', '\\']) {
        let words = "from is a folder, relative to the folder of the spec, and within the kit";
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        return reader.reject(fault.hint("from: ../files, for instance"));
    }
    Some(path.to_owned())
}

/// Reports what a suite says of surroundings that it does not have.
pub(crate) fn check(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, suite: &Suite) {
    let mut misplaced = |key: &str, words: &str| {
        let place = fields.key(key).unwrap_or(fields.place);
        reader.fault(Fault::new(FaultCode::MisplacedKey, place, words));
    };
    if matches!(suite.subject, EvalSubject::Run(_)) {
        if suite.workspace.is_some() {
            let words = "a recorded run has no workspace: ktsu check RUN --workspace DIR has one";
            misplaced("workspace", words);
        }
        if !suite.services.is_empty() {
            misplaced("services", "a recorded run has no services");
        }
    } else if suite.workspace.is_none() && !suite.services.tools.is_empty() {
        let words = "services of the type mcp work in a workspace: workspace: {}";
        misplaced("services", words);
    }
    check_references(reader, fields, suite);
}

/// Reports checks of services that the suite does not have, or that keep nothing.
pub(crate) fn check_uses(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, spec: &EvalSpec) {
    // A service of a type that is not supported yet is refused as such.
    let suite = spec.suite.as_ref();
    let Some(suite) = suite.filter(|suite| suite.services.later.is_none()) else {
        return;
    };
    for invariant in &spec.invariants {
        let Some((key, words, hint)) = wrong_use(&invariant.check, &suite.services) else {
            continue;
        };
        let invariants = fields.get("invariants");
        let one = invariants.and_then(|node| member(node, &invariant.name));
        let node = one.and_then(|node| member(member(node, "check")?, key));
        let place = node.map_or(fields.place, |node| node.place);
        let fault = Fault::new(FaultCode::BadValue, place, words);
        reader.fault(fault.hint(format!("services: {{{hint}}}")));
    }
}

/// The fault in the service that a check looks at: the key of the check that names it, words, and
/// the service that it needs.
fn wrong_use(
    check: &CheckKind,
    services: &SuiteServices,
) -> Option<(&'static str, String, String)> {
    if let CheckKind::Sql(check) = check {
        let name = &check.service;
        let words = format!("the suite has no database {name:?}");
        let needed = format!("{name}: {{type: postgres}}");
        return (!services.databases.contains_key(name)).then_some(("service", words, needed));
    }
    let (name, key) = check.receiver()?;
    let words = match services.mocks.get(name) {
        Some(mock) if mock.record => return None,
        Some(_) => format!("the service {name:?} does not keep what it receives"),
        None => format!("the suite has no service {name:?} of the type http_mock"),
    };
    Some((
        key,
        words,
        format!("{name}: {{type: http_mock, record: true}}"),
    ))
}

/// Reports references in params and in commands of services that stand for nothing.
fn check_references(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, suite: &Suite) {
    let services = suite.services.with_url();
    let mut known: BTreeSet<String> = services
        .map(|name| format!("services.{name}.url"))
        .collect();
    known.extend(suite.workspace.as_ref().map(|_| WORKSPACE.to_owned()));
    let mut report = |key: &str, (written, name): (&str, &str), known: &BTreeSet<String>| {
        let place = fields.key(key).unwrap_or(fields.place);
        let words = match known.contains(name) {
            true => format!("{written} is written {{{{ {name} }}}}"),
            false => format!("{written} stands for nothing here"),
        };
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let hint = match known.is_empty() {
            true => "workspace: {} gives each run a folder, {{ workspace }}".to_owned(),
            false => format!("known: {}", known.join(", ")),
        };
        reader.fault(Fault::new(FaultCode::BadValue, place, words).hint(hint));
    };
    let unknown = |text| unknown_reference(text, &[WORKSPACE, SERVICES], &known);
    if let Some(found) = suite.texts().find_map(unknown) {
        report("subject", found, &known);
    }
    for service in suite.services.tools.values() {
        let mut known = known.clone();
        known.extend(service.from.as_ref().map(|_| PROGRAM.to_owned()));
        known.extend(suite.param_names().map(|name| format!("{PARAMS}{name}")));
        let ours = [WORKSPACE, PROGRAM, SERVICES, PARAMS];
        let unknown = |text| unknown_reference(text, &ours, &known);
        if let Some(found) = service
            .command
            .iter()
            .find_map(|text| unknown(text.as_str()))
        {
            report("services", found, &known);
        }
    }
}
