//! The shape of a file: one table, used both to check its keys and to generate its JSON Schema.
//!
//! ```text
//! Shape --Reader::shaped--> unknown and missing keys, at their places
//!       --json::document--> docs/schemas/KIND.schema.json, for editors
//! ```
//!
//! The meaning of a value is left to its reader; a shape contains only what an editor needs.

pub mod json;

use FieldType::{Flag, Integer, Keywords, List, Note, Number, Pattern, Schema, Text};

/// A map whose keys are known.
#[derive(Debug)]
pub struct MapShape {
    /// As faults call it: `the step`.
    pub what: &'static str,
    /// The keys, in the order of the documentation.
    pub keys: &'static [KeyShape],
    /// Groups of keys of which exactly one must be there. The reader reports violations.
    pub one_of: &'static [&'static [&'static str]],
    /// Keys of which at least one must be there, likewise.
    pub any_of: &'static [&'static str],
}

/// A key of a map.
#[derive(Debug)]
pub struct KeyShape {
    /// As it is written.
    pub name: &'static str,
    /// The type of its value.
    pub of: FieldType,
    /// One line for people who write the file.
    pub doc: &'static str,
    /// True if the key must be there.
    pub required: bool,
    /// The keys of which one must be there as well; empty if there is no such condition.
    pub with: &'static [&'static str],
}

/// The type of a key's value.
#[derive(Debug)]
pub enum FieldType {
    /// Anything, templates within it included.
    Any,
    /// Text.
    Text,
    /// Text for readers, which has no effect.
    Note,
    /// Text of this form: a regular expression that JSON Schema and Rust read alike.
    Pattern(&'static str),
    /// One of these words.
    Keywords(&'static [&'static str]),
    /// True or false.
    Flag,
    /// A number between two bounds, both included.
    Number(f64, f64),
    /// A whole number between two bounds, both included.
    Integer(i64, i64),
    /// A JSON Schema.
    Schema,
    /// A list of such values.
    List(&'static FieldType),
    /// A list of such values, at least one.
    Filled(&'static FieldType),
    /// A map with arbitrary keys.
    Each(&'static FieldType),
    /// A map of a shape.
    Map(&'static MapShape),
    /// A value of one of these types.
    Either(&'static [FieldType]),
}

impl MapShape {
    /// A shape without groups of keys.
    pub const fn new(what: &'static str, keys: &'static [KeyShape]) -> Self {
        Self {
            what,
            keys,
            one_of: &[],
            any_of: &[],
        }
    }

    /// Exactly one key of each of these groups must be there.
    pub const fn one_of(mut self, groups: &'static [&'static [&'static str]]) -> Self {
        self.one_of = groups;
        self
    }

    /// At least one of these keys must be there.
    pub const fn any_of(mut self, keys: &'static [&'static str]) -> Self {
        self.any_of = keys;
        self
    }

    /// The names of all keys.
    pub fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }
}

/// A key that may be left out.
pub const fn optional(name: &'static str, of: FieldType) -> KeyShape {
    KeyShape {
        name,
        of,
        doc: "",
        required: false,
        with: &[],
    }
}

/// A key that must be there.
pub const fn required(name: &'static str, of: FieldType) -> KeyShape {
    let mut key = optional(name, of);
    key.required = true;
    key
}

impl KeyShape {
    /// Its description, for people who write the file.
    pub const fn doc(mut self, doc: &'static str) -> Self {
        self.doc = doc;
        self
    }

    /// Allowed only together with one of these keys.
    pub const fn with(mut self, keys: &'static [&'static str]) -> Self {
        self.with = keys;
        self
    }
}

/// Names from outside (decision S1).
pub const NAME: FieldType = Pattern("^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$");
/// Names of variables.
pub const VARIABLE: FieldType = Pattern("^[A-Za-z_][A-Za-z0-9_]{0,63}$");
/// Semantic versions; their reader is stricter about leading zeros.
pub const VERSION: FieldType =
    Pattern("^[0-9]+\\.[0-9]+\\.[0-9]+(-[0-9A-Za-z.-]+)?(\\+[0-9A-Za-z.-]+)?$");
/// `500ms`, `2s`, `1m30s`.
pub const DURATION: FieldType = Pattern("^\\s*([0-9.]+(ms|s|m|h))+\\s*$");
/// Seconds, more than none, at most a year.
pub const SECONDS: FieldType = Number(0.001, 31_536_000.0);
/// Names of HTTP headers.
pub const HEADER: FieldType = Pattern("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$");
/// The form of a secret in its header.
pub const SCHEME: FieldType = Keywords(&["bearer", "raw"]);
/// Text that is not literal.
pub const TEMPLATE: FieldType = Pattern("\\{\\{");
/// The treatment of webhooks.
pub const WEBHOOKS: FieldType = Keywords(&["execute", "suppress"]);

/// The number of attempts of a `retry:` in all, wherever it is used.
pub const ATTEMPTS: KeyShape = required("attempts", Integer(2, 10)).doc("In all");
/// The pauses of `retry:`.
pub const BACKOFF: KeyShape =
    optional("backoff", DURATION).doc("The first pause, which doubles; 1s by default");
/// The failures that `retry:` can name.
pub const FAILURES: FieldType = List(&Keywords(&[
    "rate_limited",
    "server_error",
    "timeout",
    "unreachable",
]));

/// `params: {schema}`.
pub const PARAMS: MapShape = MapShape::new(
    "params",
    &[required("schema", Schema).doc("JSON Schema of the params, an object")],
);

/// A variable that a file declares.
pub const DECLARED: MapShape = MapShape::new(
    "the variable",
    &[
        optional("default", Text).doc("The value where no other is set"),
        optional("description", Note).doc("For readers"),
        required("name", VARIABLE).doc("Its name in the process environment"),
        optional("secret", Flag).doc("Never recorded, at least 6 characters"),
    ],
);
