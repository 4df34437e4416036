//! Reads databases of suites, and which of them checks query.

use ktsu_config::read::ConfigReader;
use ktsu_config::yaml::{YamlNode, YamlValue};

use crate::field_reader;
use crate::program_reader;
use crate::shapes::DATABASE_SERVICE;
use crate::surroundings::{DatabaseKind, DatabaseService};

/// The types of databases, which are also what their images are called.
const TYPES: [(&str, DatabaseKind); 3] = [
    ("postgres", DatabaseKind::Postgres),
    ("mysql", DatabaseKind::MariaDb),
    ("mariadb", DatabaseKind::MariaDb),
];

/// The most files that prepare a database.
const MAX_INIT: usize = 100;

/// Returns `true` if a service is a database: by its type, or by its image.
pub(crate) fn is_database(node: &YamlNode) -> bool {
    kind_of(node).is_some()
}

fn kind_of(node: &YamlNode) -> Option<DatabaseKind> {
    match text_of(node, "type") {
        Some(kind) => kind_called(kind),
        None => text_of(node, "image").and_then(kind_of_image),
    }
}

fn kind_of_image(image: &str) -> Option<DatabaseKind> {
    kind_called(image.split_once(':').map_or(image, |(name, _)| name))
}

fn kind_called(name: &str) -> Option<DatabaseKind> {
    let mut found = TYPES.into_iter().filter(|(known, _)| *known == name);
    found.next().map(|(_, kind)| kind)
}

/// The names of the images of a kind, in words.
fn images(kind: DatabaseKind) -> String {
    let names = TYPES.into_iter().filter(|(_, of)| *of == kind);
    let names: Vec<&str> = names.map(|(name, _)| name).collect();
    names.join(" or ")
}

/// A member of a map.
pub(crate) fn member<'n>(node: &'n YamlNode, name: &str) -> Option<&'n YamlNode> {
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
    let fields = field_reader::shaped(reader, node, &DATABASE_SERVICE)?;
    let kind = kind_of(node)?;
    if let Some(image) = fields.get("image")
        && kind_of_image(reader.string(image, "image")?) != Some(kind)
    {
        let words = format!("image is {}, with any version", images(kind));
        return reader.bad_value(image, words);
    }
    let init = match fields.get("init") {
        None => Vec::new(),
        Some(node) => init(reader, node)?,
    };
    Some(DatabaseService {
        kind,
        init,
        limits: field_reader::limits(reader, &fields)?,
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
