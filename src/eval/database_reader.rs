//! Reads databases of suites, and which of them checks query.

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields};
use ktsu_config::yaml::{YamlNode, YamlValue};

use crate::check_reader;
use crate::program_reader;
use crate::shapes::DATABASE_SERVICE;
use crate::spec::{CheckKind, EvalSpec};
use crate::surroundings::DatabaseService;

/// The type of databases, and what their images are called.
const POSTGRES: &str = "postgres";

/// The most files that prepare a database.
const MAX_INIT: usize = 100;

/// Whether a service is a database: by its type, or by its image.
pub(crate) fn is_database(node: &YamlNode) -> bool {
    match text_of(node, "type") {
        Some(kind) => kind == POSTGRES,
        None => text_of(node, "image").is_some_and(is_image),
    }
}

fn is_image(image: &str) -> bool {
    let name = image.split_once(':').map_or(image, |(name, _)| name);
    name == POSTGRES
}

fn member<'n>(node: &'n YamlNode, name: &str) -> Option<&'n YamlNode> {
    let YamlValue::Map(members) = &node.data else {
        return None;
    };
    let mut members = members.iter();
    let found = members.find(|(key, _)| key.text == name);
    found.map(|(_, node)| node)
}

fn text_of<'n>(node: &'n YamlNode, name: &str) -> Option<&'n str> {
    match &member(node, name)?.data {
        YamlValue::Text(text) => Some(text),
        _ => None,
    }
}

/// A database.
pub(crate) fn service(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<DatabaseService> {
    let fields = check_reader::shaped(reader, node, &DATABASE_SERVICE)?;
    if let Some(image) = fields.get("image")
        && !is_image(reader.string(image, "image")?)
    {
        return reader.bad_value(image, "image is postgres, with any version");
    }
    let init = match fields.get("init") {
        None => Vec::new(),
        Some(node) => init(reader, node)?,
    };
    Some(DatabaseService {
        init,
        limits: check_reader::limits(reader, &fields)?,
    })
}

fn init(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<Vec<String>> {
    let items = match &node.data {
        YamlValue::List(items) if (1..=MAX_INIT).contains(&items.len()) => items,
        _ => {
            let words = format!("init is a list of 1 to {MAX_INIT} files");
            return reader.bad_value(node, words);
        }
    };
    let files = items.iter();
    files
        .map(|item| program_reader::file(reader, item, "init", "[schema.sql]"))
        .collect()
}

/// Reports checks of databases that the suite does not have.
pub(crate) fn check(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, spec: &EvalSpec) {
    // A service of a type that is not supported yet is refused as such.
    let suite = spec.suite.as_ref();
    let Some(suite) = suite.filter(|suite| suite.services.later.is_none()) else {
        return;
    };
    for invariant in &spec.invariants {
        let CheckKind::Sql(check) = &invariant.check else {
            continue;
        };
        if suite.services.databases.contains_key(&check.service) {
            continue;
        }
        let invariants = fields.get("invariants");
        let one = invariants.and_then(|node| member(node, &invariant.name));
        let node = one.and_then(|node| member(member(node, "check")?, "service"));
        let words = format!("the suite has no database {:?}", check.service);
        let place = node.map_or(fields.place, |node| node.place);
        let fault = Fault::new(FaultCode::BadValue, place, words);
        let hint = format!("services: {{{}: {{type: postgres}}}}", check.service);
        reader.fault(fault.hint(hint));
    }
}
