//! Queries, understood whole: what is unknown or makes no sense is refused, not ignored.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use utoipa::IntoParams;

use crate::error::{ErrorCode, Problem};

/// The query of a request, as what a route takes.
pub(super) struct Query<T>(pub(super) T);

/// What a route takes.
pub(super) trait Asked: Sized {
    /// The names of its parameters.
    const NAMES: &'static [&'static str];

    /// Reads the parameters; each stands there once at the most.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidQuery`].
    fn read(given: &Given) -> Result<Self, Problem>;
}

/// A route without parameters.
pub(super) struct Nothing;

impl Asked for Nothing {
    const NAMES: &'static [&'static str] = &[];

    fn read(_: &Given) -> Result<Self, Problem> {
        Ok(Self)
    }
}

/// The longest a request may wait, in seconds.
const MAX_WAIT: u64 = 3600;

/// How to answer.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Wait {
    /// Seconds to wait for the end, at most 3600: 200 with what it came to if it comes, else 202.
    pub(super) wait: Option<u64>,
}

impl Asked for Wait {
    const NAMES: &'static [&'static str] = &["wait"];

    fn read(given: &Given) -> Result<Self, Problem> {
        let wait = given.number("wait", 0, MAX_WAIT)?;
        Ok(Self { wait })
    }
}

/// Parameters as they were sent.
pub(super) struct Given(Vec<(String, String)>);

impl Given {
    /// A text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let mut members = self.0.iter();
        let found = members.find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A whole number within bounds.
    pub(super) fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>, Problem> {
        let fits = |number: &u64| (least..=most).contains(number);
        self.read(
            name,
            |text| text.parse().ok().filter(fits),
            || {
                let number = "takes a whole number";
                match (least, most) {
                    (0, u64::MAX) => format!("{name} {number}"),
                    (_, u64::MAX) => format!("{name} {number}, at least {least}"),
                    _ => format!("{name} {number}, {least} to {most}"),
                }
            },
        )
    }

    /// How many rows a page has: at least one, and `most` at the most.
    pub(super) fn limit(&self, usual: usize, most: usize) -> Result<usize, Problem> {
        let limit = self.number("limit", 1, u64::try_from(most).unwrap_or(u64::MAX))?;
        Ok(limit.map_or(usual, |limit| usize::try_from(limit).unwrap_or(most)))
    }

    /// Where a page begins.
    pub(super) fn cursor<T: std::str::FromStr>(&self) -> Result<Option<T>, Problem> {
        self.read(
            "cursor",
            |text| text.parse().ok(),
            || "cursor takes the `next` of another page".to_owned(),
        )
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        let flag = self.read(
            name,
            |text| text.parse().ok(),
            || format!("{name} takes true or false"),
        );
        Ok(flag?.unwrap_or_default())
    }

    /// One of some words.
    pub(super) fn word(&self, name: &str, words: &[&str]) -> Result<Option<String>, Problem> {
        let known = |text: &str| words.contains(&text).then(|| text.to_owned());
        self.read(name, known, || {
            format!("{name} takes one of {}", words.join(", "))
        })
    }

    fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
        words: impl FnOnce() -> String,
    ) -> Result<Option<T>, Problem> {
        match self.text(name).map(read) {
            None => Ok(None),
            Some(Some(value)) => Ok(Some(value)),
            Some(None) => Err(invalid(words())),
        }
    }
}

/// A query that cannot be.
pub(super) fn invalid(words: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::InvalidQuery, words)
}

impl<T: Asked, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let members = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let axum::extract::Query(members) =
            members.map_err(|_| invalid("the query cannot be read"))?;
        for (place, (name, _)) in members.iter().enumerate() {
            if !T::NAMES.contains(&name.as_str()) {
                return Err(unknown(name, T::NAMES));
            }
            if members[..place].iter().any(|(before, _)| before == name) {
                return Err(invalid(format!("{name} stands twice in the query")));
            }
        }
        T::read(&Given(members)).map(Self)
    }
}

fn unknown(name: &str, known: &[&str]) -> Problem {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let words = match name {
        _ if !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain) => {
            format!("there is no query parameter {name} here")
        }
        _ => "there is no such query parameter here".to_owned(),
    };
    invalid(words).with_hint(match known {
        [] => "this path takes none".to_owned(),
        _ => format!("this path takes {}", known.join(", ")),
    })
}
