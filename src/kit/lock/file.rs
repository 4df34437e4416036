//! `ktsu.lock.yaml`: written the same on every machine, read as strictly as any file of a kit.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use ktsu_ledger::Hash;
use ktsu_ledger::event::lock::{FORMAT, Kind, Lock, LockEntry, LockedPrices};

use super::drift::{LockDrift, LockDriftKind, PRICES as PRICES_PATH};
use super::shape::{ENTRY, LOCK, PRICES};
use crate::read::{Fields, KitReader};
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};

/// Beside `kit.yaml`.
pub const FILE: &str = "ktsu.lock.yaml";

const HEAD: &str =
    "# Written by `ktsu lock`: what this kit was when it was locked. Not to be edited.\n";

/// The text of a lock. Everything from files stands in quotes, so no name means anything to YAML.
pub fn to_yaml(lock: &Lock) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut text = format!("{HEAD}format: {}\n", lock.format);
    let prices = &lock.prices;
    let _ = writeln!(text, "prices:\n  version: {}", quoted(&prices.version));
    let _ = writeln!(text, "  digest: {}\nentries:", quoted(&prices.digest));
    for entry in &lock.entries {
        let _ = writeln!(text, "  - kind: {}", entry.kind.text());
        for (name, value) in [
            ("path", Some(&entry.path)),
            ("version", Some(&entry.version)),
            ("digest", Some(&entry.digest)),
            ("definition", entry.definition.as_ref()),
        ] {
            if let Some(value) = value {
                let _ = writeln!(text, "    {name}: {}", quoted(value));
            }
        }
        let Some(tools) = &entry.tools else { continue };
        text.push_str(match tools.is_empty() {
            true => "    tools: {}\n",
            false => "    tools:\n",
        });
        for (tool, digest) in tools {
            let _ = writeln!(text, "      {}: {}", quoted(tool), quoted(digest));
        }
    }
    text
}

/// A lock as read, with the places of what it says.
pub(crate) struct LocatedLock {
    pub(super) lock: Lock,
    entries: SourceSpan,
    prices: SourceSpan,
    places: BTreeMap<String, EntryPlaces>,
}

struct EntryPlaces {
    path: SourceSpan,
    version: SourceSpan,
    digest: SourceSpan,
    definition: SourceSpan,
}

impl LocatedLock {
    /// The place in the lock at which it differs from the kit.
    pub(super) fn place(&self, drift: &LockDrift) -> SourceSpan {
        if drift.path == PRICES_PATH && drift.kind.is_none() {
            return self.prices;
        }
        let entry = self.places.get(&drift.path);
        entry.map_or(self.entries, |entry| match drift.difference {
            LockDriftKind::Added | LockDriftKind::Prices | LockDriftKind::Removed => entry.path,
            LockDriftKind::Changed => entry.digest,
            LockDriftKind::Definition => entry.definition,
            LockDriftKind::Version => entry.version,
        })
    }
}

/// Reads the tree of a lock's file; every fault, and the lock if it is none.
pub(super) fn read(text: &str, root: &YamlNode) -> (Option<LocatedLock>, Vec<Fault>) {
    let mut reader = KitReader::new(Path::new(FILE), text);
    let placed = whole(&mut reader, root);
    let broken = !reader.faults.is_empty();
    (placed.filter(|_| !broken), reader.into_faults())
}

fn whole(reader: &mut KitReader<'_>, root: &YamlNode) -> Option<LocatedLock> {
    // What another version of ktsu wrote may have any keys.
    format(reader, root)?;
    let fields = reader.shaped(root, &LOCK)?;
    let prices = fields.read("prices", |node| Some((prices(reader, node)?, node.place)));
    let listed = fields.get("entries")?;
    let nodes = reader.list(listed, "entries")?;
    let mut entries: Vec<LockEntry> = Vec::with_capacity(nodes.len());
    let mut places = BTreeMap::new();
    for node in nodes {
        let Some((entry, place)) = entry(reader, node) else {
            continue;
        };
        let at = place.path;
        let (path, kind) = (entry.path.clone(), entry.kind);
        entries.push(entry);
        if places.insert(path.clone(), place).is_some() {
            let words = format!("the {} {path:?} is locked twice", kind.text());
            reader.fault(Fault::new(FaultCode::DuplicateName, at, words));
        }
    }
    let (prices, prices_place) = prices?;
    Some(LocatedLock {
        lock: Lock {
            entries,
            format: FORMAT,
            prices,
        },
        entries: fields.key("entries").unwrap_or(fields.place),
        prices: prices_place,
        places,
    })
}

fn format(reader: &mut KitReader<'_>, root: &YamlNode) -> Option<()> {
    let open = reader.open_map(root, "the lock")?;
    let node = reader.required(&open, "format", "the lock")?;
    let known = match &node.data {
        YamlValue::Number(number) => number.as_u64() == Some(u64::from(FORMAT)),
        _ => false,
    };
    if !known {
        let words = format!("the lock is not of format {FORMAT}, which this version of ktsu knows");
        let fault = Fault::new(FaultCode::LockFormat, node.place, words);
        reader.fault(
            fault.hint("use the version of ktsu that wrote it, or write it anew with `ktsu lock`"),
        );
    }
    known.then_some(())
}

fn prices(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<LockedPrices> {
    let fields = reader.shaped(node, &PRICES)?;
    let digest = digest(reader, &fields, "digest");
    let version = text(reader, &fields, "version");
    Some(LockedPrices {
        digest: digest?.0,
        version: version?.0,
    })
}

fn entry(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<(LockEntry, EntryPlaces)> {
    const KINDS: [(&str, Kind); 4] = [
        ("agent", Kind::Agent),
        ("server", Kind::Server),
        ("workflow", Kind::Workflow),
        ("world", Kind::World),
    ];
    let fields = reader.shaped(node, &ENTRY)?;
    let kind = fields.read("kind", |node| reader.keyword(node, "kind", &KINDS));
    let path = text(reader, &fields, "path");
    let version = text(reader, &fields, "version");
    if let Some((version, place)) = &version
        && semver::Version::parse(version).is_err()
    {
        let words = format!("{version:?} is not a semantic version");
        reader.fault(Fault::new(FaultCode::BadVersion, *place, words));
    }
    let own = digest(reader, &fields, "digest");
    let definition = match fields.get("definition") {
        Some(_) => Some(digest(reader, &fields, "definition")?),
        None => None,
    };
    let tools = fields.get("tools").map(|node| tools(reader, node, kind));
    let ((path, path_place), (version, version_place)) = (path?, version?);
    let (own, own_place) = own?;
    let definition_place = definition.as_ref().map_or(path_place, |(_, place)| *place);
    Some((
        LockEntry {
            definition: definition.map(|(text, _)| text),
            digest: own,
            kind: kind?,
            path,
            tools,
            version,
        },
        EntryPlaces {
            path: path_place,
            version: version_place,
            digest: own_place,
            definition: definition_place,
        },
    ))
}

/// The tools of a server, which nothing here has seen yet.
fn tools(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    kind: Option<Kind>,
) -> BTreeMap<String, String> {
    if kind.is_some_and(|kind| kind != Kind::Server) {
        let words = "only a server has tools";
        reader.fault(Fault::new(FaultCode::MisplacedKey, node.place, words));
    }
    let mut found = BTreeMap::new();
    let fields = reader.open_map(node, "tools");
    let (Some(fields), YamlValue::Map(members)) = (fields, &node.data) else {
        return found;
    };
    for (key, _) in members {
        if let Some((text, _)) = digest(reader, &fields, &key.text) {
            found.insert(key.text.clone(), text);
        }
    }
    found
}

fn text(
    reader: &mut KitReader<'_>,
    fields: &Fields<'_>,
    name: &str,
) -> Option<(String, SourceSpan)> {
    let node = fields.get(name)?;
    let text = reader.string(node, name)?;
    Some((text.to_owned(), node.place))
}

fn digest(
    reader: &mut KitReader<'_>,
    fields: &Fields<'_>,
    name: &str,
) -> Option<(String, SourceSpan)> {
    let (text, place) = text(reader, fields, name)?;
    if text.parse::<Hash>().is_err() {
        let words = format!("{name} must be a BLAKE3 digest: 64 lower-case hexadecimal digits");
        return reader.reject(Fault::new(FaultCode::BadValue, place, words));
    }
    Some((text, place))
}
