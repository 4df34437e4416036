//! Values on their way to the server and back.

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::store::columns::int;
use ktsu_ledger::store::{IndexRow, StoreError};
use ktsu_ledger::{Hash, Record, StreamId, strict};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::SqlParameter;

/// A text.
pub(crate) fn text(value: &str) -> SqlParameter {
    (Box::new(value.to_owned()), Type::TEXT)
}

/// A number.
pub(crate) fn number(value: u64) -> SqlParameter {
    (Box::new(int(value)), Type::INT8)
}

/// A limit of rows.
pub(crate) fn limit(rows: usize) -> SqlParameter {
    number(rows as u64)
}

/// A hash.
pub(crate) fn bytes(hash: &Hash) -> SqlParameter {
    (Box::new(hash.as_bytes().to_vec()), Type::BYTEA)
}

/// Several texts.
pub(crate) fn texts<'t>(values: impl IntoIterator<Item = &'t str>) -> SqlParameter {
    let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
    (Box::new(values), Type::TEXT_ARRAY)
}

/// Several numbers.
pub(crate) fn numbers(values: Vec<i64>) -> SqlParameter {
    (Box::new(values), Type::INT8_ARRAY)
}

/// Several hashes.
pub(crate) fn hashes<'h>(values: impl IntoIterator<Item = &'h Hash>) -> SqlParameter {
    let values: Vec<Vec<u8>> = values
        .into_iter()
        .map(|hash| hash.as_bytes().to_vec())
        .collect();
    (Box::new(values), Type::BYTEA_ARRAY)
}

/// A key of a run, which may have any character: as its bytes.
pub(crate) fn key_parameter(key: &str) -> SqlParameter {
    (Box::new(key.as_bytes().to_vec()), Type::BYTEA)
}

/// Several keys.
pub(crate) fn key_list<'k>(keys: impl IntoIterator<Item = Option<&'k str>>) -> SqlParameter {
    let keys = keys
        .into_iter()
        .map(|key| key.map(|key| key.as_bytes().to_vec()));
    let keys: Vec<Option<Vec<u8>>> = keys.collect();
    (Box::new(keys), Type::BYTEA_ARRAY)
}

/// The key of a run, if it has one.
pub(crate) fn key(row: &Row, at: usize) -> Result<Option<String>, StoreError> {
    let bytes: Option<Vec<u8>> = column(row, at)?;
    let text = bytes.map(String::from_utf8).transpose();
    text.map_err(|_| damaged("a key that is not UTF-8"))
}

/// The error of what is stored and cannot be.
pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(what.to_owned())
}

/// A column that has its declared type.
pub(crate) fn column<'r, T>(row: &'r Row, at: usize) -> Result<T, StoreError>
where
    T: tokio_postgres::types::FromSql<'r>,
{
    row.try_get(at)
        .map_err(|_| damaged("a value of another type than its table has"))
}

/// A number that is not negative.
pub(crate) fn unsigned(row: &Row, at: usize) -> Result<u64, StoreError> {
    let number: i64 = column(row, at)?;
    u64::try_from(number).map_err(|_| damaged("a negative number"))
}

/// A hash.
pub(crate) fn hash(row: &Row, at: usize) -> Result<Hash, StoreError> {
    let bytes: &[u8] = column(row, at)?;
    Hash::from_bytes(bytes).ok_or_else(|| damaged("a hash that has not 32 bytes"))
}

/// The name of a stream.
pub(crate) fn stream_id(name: &str) -> Result<StreamId, StoreError> {
    name.parse()
        .map_err(|error| StoreError::failed("read the name of a stream", error))
}

/// A frame from the columns number, hash and body; its bytes are what its hash says.
pub(crate) fn record(row: &Row, of: &StreamId) -> Result<Record, StoreError> {
    let record = Record {
        seq: unsigned(row, 0)?,
        hash: hash(row, 1)?,
        body: column(row, 2)?,
    };
    match Hash::of(record.body.as_bytes()) == record.hash {
        true => Ok(record),
        false => {
            let words = format!("{of}#{} is not what its hash says", record.seq);
            Err(StoreError::Damaged(words))
        }
    }
}

/// A stored text that is canonical JSON.
pub(crate) fn json(body: String) -> Result<CanonicalJson, StoreError> {
    strict::check_value(&body).map_err(|error| StoreError::Damaged(error.to_string()))?;
    serde_json::value::RawValue::from_string(body)
        .map(CanonicalJson::from)
        .map_err(|_| damaged("a text that is not JSON"))
}

/// The columns of [`index_row`].
pub(crate) const ROW: &str = "stream, workflow, status, open, created_us, key, row, digest";

/// An index row, if it is as it was put.
pub(crate) fn index_row(row: &Row) -> Result<IndexRow, StoreError> {
    let name: String = column(row, 0)?;
    let wrong = || StoreError::WrongRow(format!("the index row of {name} is not as it was put"));
    let found = IndexRow {
        stream: name.parse().map_err(|_| wrong())?,
        workflow: column(row, 1)?,
        status: column(row, 2)?,
        open: column(row, 3)?,
        created_us: unsigned(row, 4).map_err(|_| wrong())?,
        key: key(row, 5)?,
        row: json(column(row, 6)?).map_err(|_| wrong())?,
    };
    match hash(row, 7).is_ok_and(|digest| digest == found.digest()) {
        true => Ok(found),
        false => Err(wrong()),
    }
}
