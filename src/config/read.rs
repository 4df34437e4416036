//! From located YAML to checked values: one small reader for every kind of value.

use std::path::Path;

use super::fault::{Fault, FaultCode, Faults};
use ktsu_codes::nearest;
use ktsu_ledger::id::is_name;

use super::shape::{FieldType, MapShape};
use super::yaml::{self, SourceSpan, YamlKey, YamlNode, YamlValue};

/// The text of a file that holds YAML, kept for reports under the name it is `shown` by.
pub fn source(path: &Path, shown: &Path, faults: &mut Faults) -> Option<String> {
    let text = match std::fs::metadata(path) {
        Ok(about) if about.len() > yaml::MAX_FILE => {
            Err((FaultCode::FileTooLarge, "the file is larger than 1 MiB"))
        }
        // Devices and pipes say nothing of how much they give.
        Ok(about) if about.is_file() => std::fs::read_to_string(path)
            .map_err(|_| (FaultCode::FileUnreadable, "the file cannot be read")),
        Ok(_) | Err(_) => Err((FaultCode::FileUnreadable, "the file cannot be read")),
    };
    match text {
        Ok(text) => {
            faults.sources.insert(shown.to_owned(), text.clone());
            Some(text)
        }
        Err((code, words)) => {
            faults.add(Fault::new(code, SourceSpan::default(), words).in_file(shown));
            None
        }
    }
}

/// Returns `true` if a path stays in a folder, links followed. A path that cannot be followed
/// counts as one that stays.
pub fn is_within(folder: &Path, path: &Path) -> bool {
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    match path.canonicalize() {
        Ok(real) => folder
            .canonicalize()
            .is_ok_and(|folder| real.starts_with(folder)),
        Err(_) => true,
    }
}

/// The tree of such a text.
pub fn tree(text: &str, shown: &Path, faults: &mut Faults) -> Option<YamlNode> {
    match yaml::parse(text) {
        Ok(node) => Some(node),
        Err(fault) => {
            faults.add(fault.in_file(shown));
            None
        }
    }
}

/// Headers that carry no secret of a workflow or a server.
const RESERVED_HEADERS: &str = "\
    accept connection content-length content-type expect host idempotency-key ktsu-token te \
    trailer transfer-encoding upgrade";

/// A year.
const MAX_DURATION_MS: u64 = 31_536_000_000;

/// Reads one file and gathers its faults.
pub struct ConfigReader<'a> {
    /// The file, as reports show it.
    pub file: &'a Path,
    /// The text of the file.
    pub text: &'a str,
    /// The faults found so far.
    pub faults: Vec<Fault>,
}

/// The members of a map whose keys are known.
pub struct Fields<'n> {
    /// The place of the map.
    pub place: SourceSpan,
    members: Vec<(&'n YamlKey, &'n YamlNode)>,
}

impl<'n> Fields<'n> {
    /// The value of a key that is there and not null.
    pub fn get(&self, name: &str) -> Option<&'n YamlNode> {
        let found = self.members.iter().find(|(key, _)| key.text == name);
        found
            .map(|(_, node)| *node)
            .filter(|node| !matches!(node.data, YamlValue::Null))
    }

    /// Reads the value of a key that is there and not null.
    pub fn read<T>(&self, name: &str, read: impl FnOnce(&'n YamlNode) -> Option<T>) -> Option<T> {
        self.get(name).and_then(read)
    }

    /// The first key that is there without a value, of all but some.
    pub fn first_empty(&self, but: &[&str]) -> Option<(&'n str, SourceSpan)> {
        let mut empty = self.members.iter().filter(|(key, node)| {
            matches!(node.data, YamlValue::Null) && !but.contains(&key.text.as_str())
        });
        empty.next().map(|(key, _)| (key.text.as_str(), key.place))
    }

    /// The place of a key that is there, null or not.
    pub fn key(&self, name: &str) -> Option<SourceSpan> {
        let found = self.members.iter().find(|(key, _)| key.text == name);
        found.map(|(key, _)| key.place)
    }
}

impl<'a> ConfigReader<'a> {
    /// A reader of a file that has found no faults.
    pub fn new(file: &'a Path, text: &'a str) -> Self {
        Self {
            file,
            text,
            faults: Vec::new(),
        }
    }

    /// Adds a fault; its hint can still be given.
    pub fn fault(&mut self, fault: Fault) {
        self.faults.push(fault.in_file(self.file));
    }

    /// Adds a fault, and reads nothing.
    pub fn reject<T>(&mut self, fault: Fault) -> Option<T> {
        self.fault(fault);
        None
    }

    fn wrong_type<T>(&mut self, node: &YamlNode, what: &str, wanted: &str) -> Option<T> {
        let words = format!("{what} must be {wanted}, got {}", node.kind());
        self.reject(Fault::new(FaultCode::WrongType, node.place, words))
    }

    /// Reports a value that does not fit, and reads nothing.
    pub fn bad_value<T>(&mut self, node: &YamlNode, words: impl Into<String>) -> Option<T> {
        self.reject(Fault::new(FaultCode::BadValue, node.place, words))
    }

    /// A map with these keys and no others; none of them twice.
    pub fn map<'n>(
        &mut self,
        node: &'n YamlNode,
        what: &str,
        known: &[&str],
    ) -> Option<Fields<'n>> {
        let fields = self.open_map(node, what)?;
        for (key, node) in &fields.members {
            if !known.contains(&key.text.as_str()) {
                self.unknown_key(key, what, known);
                self.hide_if_secret(key, node, known);
            }
        }
        if known.contains(&"description")
            && let Some(node) = fields.get("description")
        {
            self.string(node, "description");
        }
        Some(fields)
    }

    /// A map of a shape: no other keys, none of them twice, and those that must be there.
    pub fn shaped<'n>(&mut self, node: &'n YamlNode, shape: &MapShape) -> Option<Fields<'n>> {
        let fields = self.map(node, shape.what, &shape.names())?;
        for key in shape.keys {
            if key.required {
                self.required(&fields, key.name, shape.what);
            }
            if let (FieldType::Note, Some(node)) = (&key.of, fields.get(key.name)) {
                self.string(node, key.name);
            }
        }
        Some(fields)
    }

    /// A map of a shape in which every key has a value, but for some: without its value, a key would be
    /// as if it were absent.
    pub fn filled<'n>(
        &mut self,
        node: &'n YamlNode,
        shape: &MapShape,
        may_be_null: &[&str],
    ) -> Option<Fields<'n>> {
        let fields = self.shaped(node, shape)?;
        match fields.first_empty(may_be_null) {
            None => Some(fields),
            Some((name, place)) => {
                let words = format!("{name} has no value");
                self.reject(Fault::new(FaultCode::BadValue, place, words))
            }
        }
    }

    /// Reports a key that is not known, with a hint.
    pub fn unknown_key(&mut self, key: &YamlKey, what: &str, known: &[&str]) {
        let words = format!("unknown key {:?} in {what}", key.text);
        let is_of_workflow = what == "output" && known.contains(&"map");
        let known: Vec<&str> = known
            .iter()
            .copied()
            .filter(|name| !is_of_workflow || *name != "from")
            .collect();
        let fault = Fault::new(FaultCode::UnknownKey, key.place, words);
        let fault = match (key.text.as_str(), nearest(&key.text, known.iter().copied())) {
            ("consolidation", _) => fault
                .hint("results always arrive as the list `results`; reshape them in a transform"),
            ("command" | "args" | "image" | "build" | "env", _) if what == "the server" => fault
                .hint("a server runs elsewhere and is reached by its url: nothing is started here"),
            ("blocklist" | "denylist", _) => {
                fault.hint("access: {allowlist: […]} says what may be called")
            }
            ("continue_on_error" | "optional" | "allow_failed", _) => {
                fault.hint("a failed step always fails the run; use a condition or max_failures")
            }
            (_, Some(near)) => fault.hint(format!("did you mean {near}?")),
            (_, None) if is_of_workflow => fault.hint("put it under `map:`"),
            (_, None) => fault.hint(format!("known keys: {}", known.join(", "))),
        };
        self.fault(fault);
    }

    /// Keeps what stands behind an unknown key out of reports, where the key may be a slip for
    /// `secret`.
    fn hide_if_secret(&mut self, key: &YamlKey, node: &YamlNode, known: &[&str]) {
        let near = nearest(&key.text, known.iter().copied()).unwrap_or("secret");
        if let (true, "secret", Some(fault)) =
            (known.contains(&"secret"), near, self.faults.last_mut())
        {
            fault.hide(node.scalars());
        }
    }

    /// A part that is about a secret: where it is no map, whatever it is may be the secret.
    pub fn secret_map<'n>(&mut self, node: &'n YamlNode, shape: &MapShape) -> Option<Fields<'n>> {
        let before = self.faults.len();
        let fields = self.shaped(node, shape);
        if let (None, Some(fault)) = (&fields, self.faults.get_mut(before)) {
            fault.hide(node.scalars());
        }
        fields
    }

    /// The text of a secret. One of another type is a secret as well, and no report shows it.
    pub fn secret_text<'n>(&mut self, node: &'n YamlNode, what: &str) -> Option<&'n str> {
        if let YamlValue::Text(text) = &node.data {
            return Some(text);
        }
        let words = format!("{what} must be text, got {}", node.kind());
        self.fault(Fault::new(FaultCode::WrongType, node.place, words).hiding_all_of(node));
        None
    }

    /// A map with any keys, none of them twice.
    pub fn open_map<'n>(&mut self, node: &'n YamlNode, what: &str) -> Option<Fields<'n>> {
        let YamlValue::Map(members) = &node.data else {
            return self.wrong_type(node, what, "a map");
        };
        self.report_duplicates(members);
        Some(Fields {
            place: node.place,
            members: members.iter().map(|(key, node)| (key, node)).collect(),
        })
    }

    fn report_duplicates(&mut self, members: &[(YamlKey, YamlNode)]) {
        for (position, (key, _)) in members.iter().enumerate() {
            let earlier = members[..position]
                .iter()
                .find(|(other, _)| other.text == key.text);
            if let Some((first, _)) = earlier {
                let words = format!("the key {:?} appears twice", key.text);
                let hint = format!("the first one is on line {}", first.place.line);
                self.fault(Fault::new(FaultCode::DuplicateKey, key.place, words).hint(hint));
            }
        }
    }

    /// Keys twice anywhere in a free tree (schemas, bodies).
    pub fn report_nested_duplicates(&mut self, node: &YamlNode) {
        match &node.data {
            YamlValue::Map(members) => {
                self.report_duplicates(members);
                members
                    .iter()
                    .for_each(|(_, member)| self.report_nested_duplicates(member));
            }
            YamlValue::List(items) => items
                .iter()
                .for_each(|item| self.report_nested_duplicates(item)),
            _ => {}
        }
    }

    /// The members of a map with arbitrary keys; none if it is not one, which is reported.
    pub fn members<'n>(&mut self, node: &'n YamlNode, what: &str) -> &'n [(YamlKey, YamlNode)] {
        match (self.open_map(node, what), &node.data) {
            (Some(_), YamlValue::Map(members)) => members,
            _ => &[],
        }
    }

    /// A key that must be there.
    pub fn required<'n>(
        &mut self,
        fields: &Fields<'n>,
        name: &str,
        what: &str,
    ) -> Option<&'n YamlNode> {
        let found = fields.get(name);
        if found.is_none() {
            let place = fields.key(name).unwrap_or(fields.place);
            let words = format!("{what} needs {name:?}");
            self.fault(Fault::new(FaultCode::MissingKey, place, words));
        }
        found
    }

    /// A list.
    pub fn list<'n>(&mut self, node: &'n YamlNode, what: &str) -> Option<&'n [YamlNode]> {
        match &node.data {
            YamlValue::List(items) => Some(items),
            _ => self.wrong_type(node, what, "a list"),
        }
    }

    /// Text.
    pub fn string<'n>(&mut self, node: &'n YamlNode, what: &str) -> Option<&'n str> {
        match &node.data {
            YamlValue::Text(text) => Some(text),
            YamlValue::Number(_) | YamlValue::Bool(_) => {
                let words = format!("{what} must be text, got {}", node.kind());
                let fault = Fault::new(FaultCode::WrongType, node.place, words);
                self.fault(fault.hint("put it in quotes"));
                None
            }
            _ => self.wrong_type(node, what, "text"),
        }
    }

    /// The name of an HTTP header.
    pub fn header(&mut self, node: &YamlNode) -> Option<String> {
        let header = self.string(node, "header")?;
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if header.is_empty() || !header.chars().all(token) {
            return self.bad_value(node, format!("{header:?} is not the name of a header"));
        }
        let mut reserved = RESERVED_HEADERS.split(' ');
        if reserved.any(|taken| header.eq_ignore_ascii_case(taken)) {
            let words = format!("the header {header} means something else in every request");
            let fault = Fault::new(FaultCode::BadValue, node.place, words);
            self.fault(fault.hint("header: X-Api-Key, for instance"));
            return None;
        }
        Some(header.to_owned())
    }

    /// A name from outside (decision S1), and its place.
    pub fn name(&mut self, fields: &Fields<'_>) -> Option<(String, SourceSpan)> {
        let node = fields.get("name")?;
        let name = self.string(node, "name")?;
        if !is_name(name) {
            let words =
                format!("{name:?} is not a name: letters, digits, '.', '_' and '-', at most 64");
            return self.bad_value(node, words);
        }
        Some((name.to_owned(), node.place))
    }

    /// A semantic version.
    pub fn version(&mut self, node: &YamlNode) -> Option<String> {
        let version = self.string(node, "version")?;
        if semver::Version::parse(version).is_err() {
            let words = format!("{version:?} is not a semantic version");
            let fault = Fault::new(FaultCode::BadVersion, node.place, words);
            self.fault(fault.hint("version: \"1.0.0\""));
            return None;
        }
        Some(version.to_owned())
    }

    /// True or false.
    pub fn flag(&mut self, node: &YamlNode, what: &str) -> Option<bool> {
        match &node.data {
            YamlValue::Bool(flag) => Some(*flag),
            _ => {
                let words = format!("{what} must be true or false, got {}", node.kind());
                let fault = Fault::new(FaultCode::WrongType, node.place, words);
                self.reject(match flag_meant(node) {
                    Some(meant) => fault.hint(format!("{what}: {meant}")),
                    None => fault,
                })
            }
        }
    }

    /// A number between two bounds, both included.
    pub fn number(&mut self, node: &YamlNode, what: &str, least: f64, most: f64) -> Option<f64> {
        let YamlValue::Number(number) = &node.data else {
            return self.wrong_type(node, what, "a number");
        };
        let float = number.as_f64().unwrap_or(f64::INFINITY);
        if float < least || float > most {
            return self.bad_value(node, format!("{what} must be between {least} and {most}"));
        }
        Some(float)
    }

    /// A whole number between two bounds, both included.
    pub fn integer(&mut self, node: &YamlNode, what: &str, least: i64, most: i64) -> Option<i64> {
        let YamlValue::Number(number) = &node.data else {
            return self.wrong_type(node, what, "a whole number");
        };
        match number
            .as_i64()
            .filter(|whole| (least..=most).contains(whole))
        {
            Some(whole) => Some(whole),
            None => self.bad_value(
                node,
                format!("{what} must be a whole number between {least} and {most}"),
            ),
        }
    }

    /// Seconds, more than none, as milliseconds.
    pub fn seconds(&mut self, node: &YamlNode, what: &str) -> Option<u64> {
        const MAX_SECONDS: f64 = 31_536_000.0;
        let seconds = self.number(node, what, 0.001, MAX_SECONDS)?;
        Some(rounded(seconds * 1_000.0))
    }

    /// A duration such as `1m30s` or `500ms`, as milliseconds.
    pub fn duration(&mut self, node: &YamlNode, what: &str) -> Option<u64> {
        self.duration_up_to(node, what, ("8760h, a year", MAX_DURATION_MS))
    }

    /// The same up to a bound, which has words.
    pub fn duration_up_to(
        &mut self,
        node: &YamlNode,
        what: &str,
        (words, longest): (&str, u64),
    ) -> Option<u64> {
        if let YamlValue::Number(number) = &node.data {
            let words =
                format!("{what} must be a duration such as 500ms, 2s or 1m30s, got a number");
            let fault = Fault::new(FaultCode::WrongType, node.place, words);
            self.fault(fault.hint(format!("with a unit: {number}s, or {number}ms")));
            return None;
        }
        let text = self.string(node, what)?;
        match (milliseconds(text), duration_ms(text)) {
            (_, Some(duration)) if duration <= longest => Some(duration),
            (Some(_), _) => self.bad_value(node, format!("{what} must be between 1ms and {words}")),
            (None, _) => {
                let words = format!("{what} must be a duration such as 500ms, 2s or 1m30s");
                let fault = Fault::new(FaultCode::BadValue, node.place, words);
                self.reject(match duration_meant(text) {
                    Some(meant) => fault.hint(format!("{what}: {meant}")),
                    None if text.trim().parse::<f64>().is_ok() => {
                        fault.hint(format!("with a unit: {0}s, or {0}ms", text.trim()))
                    }
                    None => fault,
                })
            }
        }
    }

    /// One of a few words.
    pub fn keyword<T: Copy>(
        &mut self,
        node: &YamlNode,
        what: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let text = self.string(node, what)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if let Some((_, meaning)) = found {
            return Some(*meaning);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        self.bad_value(
            node,
            format!("{what} must be {}, got {text:?}", known.join(" or ")),
        )
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "callers pass what was checked to be positive and far below 2^63"
)]
/// A positive number, rounded to the nearest whole one.
pub fn rounded(float: f64) -> u64 {
    float.round() as u64
}

/// The flag meant by a value that people write for true or false.
pub fn flag_meant(node: &YamlNode) -> Option<bool> {
    let word = match &node.data {
        YamlValue::Text(text) => text.trim().to_ascii_lowercase(),
        YamlValue::Number(number) => number.to_string(),
        _ => return None,
    };
    match word.as_str() {
        "yes" | "y" | "on" | "true" | "1" => Some(true),
        "no" | "n" | "off" | "false" | "0" => Some(false),
        _ => None,
    }
}

/// Units as other programs write them, in milliseconds.
const OTHER_UNITS: [(&[&str], u64); 6] = [
    (&["ms", "msec", "msecs", "millisecond", "milliseconds"], 1),
    (&["s", "sec", "secs", "second", "seconds"], 1_000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000),
    (&["d", "day", "days"], 86_400_000),
    (&["w", "wk", "wks", "week", "weeks"], 604_800_000),
];

/// Rewrites a duration in units of other programs, such as `7d` or `90 min`, in those of ktsu.
fn duration_meant(text: &str) -> Option<String> {
    let mut rest = text.trim();
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let amount: u64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let end = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = rest[..end].to_ascii_lowercase();
        let mut units = OTHER_UNITS.iter();
        let (_, ms) = units.find(|(names, _)| names.contains(&unit.as_str()))?;
        total = total.checked_add(amount.checked_mul(*ms)?)?;
        rest = rest[end..].trim_start();
    }
    let units = [(3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let fits = |(ms, _): &(u64, &str)| total > 0 && total.is_multiple_of(*ms);
    let (ms, unit) = units.into_iter().find(fits)?;
    Some(format!("{}{unit}", total / ms))
}

/// The milliseconds of a duration text such as `1h30m`, `1.5s` or `500ms`; at least one, at most
/// a year.
pub fn duration_ms(text: &str) -> Option<u64> {
    let total = milliseconds(text)?;
    (1.0..=31_536_000_000.0)
        .contains(&total)
        .then(|| rounded(total))
}

/// The same without bounds.
pub fn milliseconds(text: &str) -> Option<f64> {
    let mut rest = text.trim();
    let mut total = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let amount: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            _ => return None,
        };
        total += amount * unit;
        rest = &rest[end..];
    }
    Some(total)
}
