//! Numbers and positions as databases keep them.

/// A number as a database keeps it; what does not fit is beyond anything stored.
pub fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The position at which a scan begins; one from 0 shows what only a damaged ledger has.
pub fn scan_start(from: u64) -> i64 {
    match from {
        0 => i64::MIN,
        from => int(from),
    }
}

/// A position; 0 and a description of the value if it is not one.
pub fn position(at: i64) -> (u64, Option<String>) {
    match u64::try_from(at) {
        Ok(position) if position > 0 => (position, None),
        Ok(_) | Err(_) => (0, Some(at.to_string())),
    }
}
