//! The shape of a file: one table, by which its keys are judged and from which its JSON Schema is
//! made.
//!
//! ```text
//! Shape --Reader::shaped--> unknown and missing keys, at their places
//!       --json::document--> docs/schemas/KIND.schema.json, for editors
//! ```
//!
//! What a value means is for its reader; a shape knows no more of it than an editor needs.

pub(crate) mod agent;
pub(crate) mod json;
pub(crate) mod kit;
pub(crate) mod server;
pub(crate) mod workflow;

/// A map whose keys are known.
#[derive(Debug)]
pub(crate) struct Shape {
    /// As faults call it: `the step`.
    pub(crate) what: &'static str,
    pub(crate) keys: &'static [Key],
    /// Of each of these groups of keys exactly one is there. The reader says so, in its own words.
    pub(crate) one_of: &'static [&'static [&'static str]],
    /// Of these keys at least one is there, likewise.
    pub(crate) any_of: &'static [&'static str],
}

/// A key of a map.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) of: Of,
    /// One line for whoever writes the file.
    pub(crate) says: &'static str,
    pub(crate) required: bool,
    /// The keys of which one must be there as well; none if it stands by itself.
    pub(crate) with: &'static [&'static str],
}

/// What a key holds.
#[derive(Debug)]
pub(crate) enum Of {
    /// Anything, templates within it included.
    Any,
    Text,
    /// Text for readers, of which nothing else is made.
    Note,
    /// Text of this form: a regular expression that JSON Schema and Rust read alike.
    Form(&'static str),
    Words(&'static [&'static str]),
    Flag,
    Number(f64, f64),
    Whole(i64, i64),
    /// A JSON Schema.
    Schema,
    List(&'static Of),
    /// A map with keys of one's own.
    Each(&'static Of),
    Map(&'static Shape),
    Either(&'static [Of]),
}

impl Shape {
    pub(crate) const fn new(what: &'static str, keys: &'static [Key]) -> Self {
        Self {
            what,
            keys,
            one_of: &[],
            any_of: &[],
        }
    }

    /// Of each of these groups of keys exactly one is there.
    pub(crate) const fn one_of(mut self, groups: &'static [&'static [&'static str]]) -> Self {
        self.one_of = groups;
        self
    }

    /// Of these keys at least one is there.
    pub(crate) const fn any_of(mut self, keys: &'static [&'static str]) -> Self {
        self.any_of = keys;
        self
    }

    /// The names of all keys.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }
}

impl Key {
    pub(crate) const fn new(name: &'static str, of: Of, says: &'static str) -> Self {
        Self {
            name,
            of,
            says,
            required: false,
            with: &[],
        }
    }

    /// It must be there.
    pub(crate) const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// It goes with one of these keys only.
    pub(crate) const fn with(mut self, keys: &'static [&'static str]) -> Self {
        self.with = keys;
        self
    }
}

/// Names from outside (decision S1).
pub(crate) const NAME: Of = Of::Form("^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$");
/// Names of variables.
pub(crate) const VARIABLE: Of = Of::Form("^[A-Za-z_][A-Za-z0-9_]{0,63}$");
/// Semantic versions; their reader is stricter about leading zeros.
pub(crate) const VERSION: Of =
    Of::Form("^[0-9]+\\.[0-9]+\\.[0-9]+(-[0-9A-Za-z.-]+)?(\\+[0-9A-Za-z.-]+)?$");
/// `500ms`, `2s`, `1m30s`.
pub(crate) const DURATION: Of = Of::Form("^\\s*([0-9.]+(ms|s|m|h))+\\s*$");
/// Seconds, more than none, at most a year.
pub(crate) const SECONDS: Of = Of::Number(0.001, 31_536_000.0);
/// Names of HTTP headers.
pub(crate) const HEADER: Of = Of::Form("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$");
/// How a secret stands in its header.
pub(crate) const SCHEME: Of = Of::Words(&["bearer", "raw"]);
/// Text that is not literal.
pub(crate) const TEMPLATE: Of = Of::Form("\\{\\{");
/// Whether webhooks are sent.
pub(crate) const WEBHOOKS: Of = Of::Words(&["execute", "suppress"]);

/// How often `retry:` asks in all, wherever it stands.
pub(crate) const ATTEMPTS: Key = Key::new("attempts", Of::Whole(2, 10), "In all").required();
/// The pauses of `retry:`.
pub(crate) const BACKOFF: Key = Key::new(
    "backoff",
    DURATION,
    "The first pause, which doubles; 1s by default",
);
/// The failures that `retry:` can name.
pub(crate) const FAILURES: Of = Of::List(&Of::Words(&[
    "rate_limited",
    "server_error",
    "timeout",
    "unreachable",
]));

/// `params: {schema}`.
pub(crate) const PARAMS: Shape = Shape::new(
    "params",
    &[Key::new("schema", Of::Schema, "JSON Schema of the params, an object").required()],
);

/// A variable that a file declares.
pub(crate) const DECLARED: Shape = Shape::new(
    "the variable",
    &[
        Key::new("default", Of::Text, "The value where no other is set"),
        Key::new("description", Of::Note, "For readers"),
        Key::new("name", VARIABLE, "Its name in the process environment").required(),
        Key::new("secret", Of::Flag, "Never recorded, at least 6 characters"),
    ],
);
