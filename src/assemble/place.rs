//! The place of a ledger that a text names: the path of a file, or the address of a server.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::LedgerPlace;

/// The variable that holds the password of a server where its address has none.
#[cfg(feature = "postgres")]
const PASSWORD: &str = "PGPASSWORD";

/// The variable that names a file with the authorities that vouch for servers.
#[cfg(feature = "postgres")]
const AUTHORITIES: &str = "PGSSLROOTCERT";

/// The text names no place. It is not shown, as it may have a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerPlaceError {
    /// The address is of a kind of server that is not known.
    #[error("{0}://… is no place for a ledger: it is a file, or postgres://ROLE@HOST/DATABASE")]
    UnknownScheme(String),
    /// The address is not complete.
    #[error("{0}://… is not an address such as postgres://ROLE@HOST/DATABASE")]
    Address(String),
    /// This program was built without what reaches such a server.
    #[error("{0}://… needs a ktsu that was built with the feature postgres")]
    NotBuilt(String),
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
    let place = place.map_err(|_| LedgerPlaceError::Address(scheme.to_owned()))?;
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
    Err(LedgerPlaceError::NotBuilt(scheme.to_owned()))
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
            assert_eq!(refused, LedgerPlaceError::Address("postgres".to_owned()));
        }
    }
}
