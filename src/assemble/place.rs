//! The place of a ledger that a text names: the path of a file, or the address of a server.

use std::collections::BTreeMap;
use std::path::PathBuf;

#[cfg(feature = "postgres")]
use ktsu_postgres::ParsePlaceError;

use super::LedgerPlace;

/// What the address of a database looks like.
#[cfg(feature = "postgres")]
const POSTGRES: &str = "postgres://ROLE@HOST/DATABASE";

/// What the address of an event store looks like.
#[cfg(feature = "eventstore")]
const EVENTSTORE: &str = "esdb://USER@HOST:2113";

/// The variable that holds the password of a server where its address has none.
#[cfg(feature = "postgres")]
const PASSWORD: &str = "PGPASSWORD";

/// The variable that names a file with the authorities that vouch for servers.
#[cfg(feature = "postgres")]
const AUTHORITIES: &str = "PGSSLROOTCERT";

/// The variable that holds the password of a user whose address has none.
#[cfg(feature = "eventstore")]
const EVENTSTORE_PASSWORD: &str = "KTSU_EVENTSTORE_PASSWORD";

/// The text names no place. It is not shown, as it may have a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerPlaceError {
    /// The address is of a kind of server that is not known.
    #[error(
        "{0}://… is no place for a ledger: it is a file, postgres://ROLE@HOST/DATABASE or esdb://HOST:2113"
    )]
    UnknownScheme(String),
    /// The address is not complete.
    #[error("{0}://… is not an address such as {1}")]
    Address(String, &'static str),
    /// A parameter of the address has no meaning.
    #[error("{0}://…: {1}")]
    Parameter(String, String),
    /// This program was built without what reaches such a server.
    #[error("{0}://… needs a ktsu that was built with the feature {1}")]
    NotBuilt(String, &'static str),
}

/// The place that a text names.
///
/// # Errors
/// [`LedgerPlaceError`].
pub fn place_of(
    text: PathBuf,
    process: &BTreeMap<String, String>,
) -> Result<LedgerPlace, LedgerPlaceError> {
    let address = text.to_str().and_then(|address| address.split_once("://"));
    match address {
        None => Ok(LedgerPlace::File(text)),
        Some((scheme @ ("postgres" | "postgresql"), rest)) => on_postgres(scheme, rest, process),
        Some((scheme, rest)) if is_eventstore(scheme) => on_eventstore(scheme, rest, process),
        Some((scheme, _)) => Err(LedgerPlaceError::UnknownScheme(scheme.to_owned())),
    }
}

#[cfg(feature = "postgres")]
fn on_postgres(
    scheme: &str,
    rest: &str,
    process: &BTreeMap<String, String>,
) -> Result<LedgerPlace, LedgerPlaceError> {
    let place = format!("{scheme}://{rest}").parse::<ktsu_postgres::PostgresPlace>();
    let place = place.map_err(|error| match error {
        ParsePlaceError::Address => LedgerPlaceError::Address(scheme.to_owned(), POSTGRES),
        other => LedgerPlaceError::Parameter(scheme.to_owned(), other.to_string()),
    })?;
    let password = process.get(PASSWORD).map(String::as_str);
    let place = place.with_password(password.filter(|password| !password.is_empty()));
    let authorities = process.get(AUTHORITIES).filter(|file| !file.is_empty());
    let place = place.with_authorities(authorities.map(PathBuf::from));
    Ok(LedgerPlace::Backend(std::sync::Arc::new(place)))
}

#[cfg(not(feature = "postgres"))]
fn on_postgres(
    scheme: &str,
    _: &str,
    _: &BTreeMap<String, String>,
) -> Result<LedgerPlace, LedgerPlaceError> {
    Err(LedgerPlaceError::NotBuilt(scheme.to_owned(), "postgres"))
}

/// Returns `true` for the schemes of addresses of EventStoreDB and KurrentDB.
fn is_eventstore(scheme: &str) -> bool {
    let kind = scheme.strip_suffix("+discover").unwrap_or(scheme);
    ["esdb", "kurrentdb", "kurrent", "kdb"].contains(&kind)
}

#[cfg(feature = "eventstore")]
fn on_eventstore(
    scheme: &str,
    rest: &str,
    process: &BTreeMap<String, String>,
) -> Result<LedgerPlace, LedgerPlaceError> {
    let place = format!("{scheme}://{rest}").parse::<ktsu_eventstore::EventStorePlace>();
    let place = place.map_err(|_| LedgerPlaceError::Address(scheme.to_owned(), EVENTSTORE))?;
    let password = process.get(EVENTSTORE_PASSWORD).map_or("", String::as_str);
    let place = place.with_password(password).with_cache(&cache(process));
    Ok(LedgerPlace::Backend(std::sync::Arc::new(place)))
}

/// The folder of what can be made again.
#[cfg(feature = "eventstore")]
fn cache(process: &BTreeMap<String, String>) -> PathBuf {
    let named = |name: &str| process.get(name).filter(|folder| !folder.is_empty());
    let folder = named("KTSU_CACHE").map(PathBuf::from);
    let of_user = || named("XDG_CACHE_HOME").map(|folder| PathBuf::from(folder).join("ktsu"));
    let at_home = || named("HOME").map(|home| PathBuf::from(home).join(".cache/ktsu"));
    let folder = folder.or_else(of_user).or_else(at_home);
    folder.unwrap_or_else(|| std::env::temp_dir().join("ktsu"))
}

#[cfg(not(feature = "eventstore"))]
fn on_eventstore(
    scheme: &str,
    _: &str,
    _: &BTreeMap<String, String>,
) -> Result<LedgerPlace, LedgerPlaceError> {
    Err(LedgerPlaceError::NotBuilt(scheme.to_owned(), "eventstore"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Result<String, LedgerPlaceError> {
        let place = place_of(PathBuf::from(text), &BTreeMap::new());
        place.map(|place| place.to_string())
    }

    #[test]
    fn a_place_is_a_file_or_a_server_and_its_password_is_not_shown() {
        assert_eq!(named("a/b.db").unwrap(), "a/b.db");
        let refused = named("mysql://ann:s3cret@db/x").unwrap_err().to_string();
        assert!(refused.contains("mysql://…") && !refused.contains("s3cret"));
        #[cfg(feature = "postgres")]
        {
            let shown = "postgres://ann@db.example:5433/work?options=-csearch_path%3Dx";
            let given = "postgresql://ann:s3cret@db.example:5433/work?options=-csearch_path%3Dx";
            assert_eq!(named(given).unwrap(), shown);
            let refused = named("postgres://ann:s3cret@db:port/x").unwrap_err();
            assert_eq!(
                refused,
                LedgerPlaceError::Address("postgres".to_owned(), POSTGRES)
            );
        }
        #[cfg(not(feature = "eventstore"))]
        for scheme in ["esdb", "esdb+discover", "kurrentdb", "kdb"] {
            let refused = named(&format!("{scheme}://ann:s3cret@db"))
                .unwrap_err()
                .to_string();
            let words = "needs a ktsu that was built with the feature eventstore";
            assert_eq!(refused, format!("{scheme}://… {words}"));
        }
        #[cfg(feature = "eventstore")]
        {
            let shown = "esdb://ann@db.example:2113?ledger=work";
            assert_eq!(
                named("esdb://ann:s3cret@db.example:2113?ledger=work").unwrap(),
                shown
            );
            let refused = named("kdb://ann:s3cret@db:port").unwrap_err();
            assert_eq!(
                refused,
                LedgerPlaceError::Address("kdb".to_owned(), EVENTSTORE)
            );
        }
    }
}
