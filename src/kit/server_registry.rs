//! `servers.yaml`: third-party tool servers, declared in one place (seed 000, invariant 3).

use super::read::KitReader;
use super::server::{self, ServerDraft};
use super::shape::server::SERVERS;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{YamlNode, YamlValue};

/// The content of the list.
pub(super) struct ServerRegistry {
    /// By name; nothing where an entry is broken.
    pub(super) servers: Vec<(String, Option<ServerDraft>)>,
    /// True if every entry has a name that can be read, so that what is not here is not declared.
    pub(super) whole: bool,
}

/// Reads the list.
pub(super) fn read(reader: &mut KitReader<'_>, root: &YamlNode) -> Option<ServerRegistry> {
    let mut central = ServerRegistry {
        servers: Vec::new(),
        whole: true,
    };
    if matches!(root.data, YamlValue::Null) {
        return Some(central);
    }
    let fields = reader.shaped(root, &SERVERS)?;
    if let Some(node) = fields.get("kind") {
        reader.keyword(node, "kind", &[("servers", ())]);
    }
    let Some(list) = fields.get("servers") else {
        return Some(central);
    };
    for node in reader.list(list, "servers")? {
        let draft = server::read(reader, node);
        let YamlValue::Text(name) = &node.at("/name").data else {
            central.whole = false;
            continue;
        };
        if central.servers.iter().any(|(known, _)| known == name) {
            let words = format!("the server {name:?} appears twice");
            let place = node.at("/name").place;
            reader.fault(Fault::new(FaultCode::DuplicateName, place, words));
            continue;
        }
        central.servers.push((name.clone(), draft));
    }
    Some(central)
}
