//! The statements that change a ledger. Each is one transaction, fenced by the owner's row.

/// Bounds the wait for the owner's row: an append that waits for a standby holds it, and an engine that
/// has given up must not leave a connection that waits, too.
const LIMIT: &str =
    "(SELECT set_config('lock_timeout', '4s', true) IS NOT NULL AS is_limited) AS limited";

/// When a transaction counts as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitPolicy {
    /// Once it is on the disk, and on the standby where the server has one.
    Durable,
    /// Once the server says so, whatever it waits for: what it acknowledged may be lost.
    AsServer,
}

impl CommitPolicy {
    /// What makes a transaction wait as long, whatever the connection was set to: a pooler hands one on.
    const fn setting(self) -> &'static str {
        match self {
            Self::Durable => {
                "set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                   WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)"
            }
            Self::AsServer => "current_setting('synchronous_commit')",
        }
    }

    /// Renews the ownership, if the epoch is `$1`.
    pub(crate) fn beat(self) -> String {
        format!(
            "UPDATE ledger SET beat = beat + 1 FROM {LIMIT} WHERE id = 1 AND epoch = $1 AND is_limited
             RETURNING 1::bigint, head, {}",
            self.setting()
        )
    }

    /// Gives the ownership up, if the epoch is `$1`.
    pub(crate) fn release(self) -> String {
        format!(
            "UPDATE ledger SET beat = beat + 1, holder = '', url = '' WHERE id = 1 AND epoch = $1
             RETURNING 1::bigint, head, {}",
            self.setting()
        )
    }

    /// Makes another the owner, with a holder `$1` at a URL `$2`, if the epoch `$3`, the head `$4` and
    /// the beat `$5`, each where it is given, are those of the ledger.
    pub(crate) fn acquire(self) -> String {
        format!(
            "UPDATE ledger SET epoch = epoch + 1, beat = beat + 1, holder = $1, url = $2
             FROM {LIMIT} WHERE id = 1 AND is_limited AND epoch = coalesce($3, epoch) AND head = coalesce($4, head)
               AND beat = coalesce($5, beat) RETURNING epoch, head, {}",
            self.setting()
        )
    }

    /// Deletes some index rows, if the epoch is `$1`; gives the number of those that it found.
    pub(crate) fn clear(self) -> String {
        format!(
            "WITH fence AS (UPDATE ledger SET beat = beat + 1 WHERE id = 1 AND epoch = $1 RETURNING 1),
               found AS (SELECT stream FROM index_rows LIMIT $2),
               gone AS (DELETE FROM index_rows USING fence WHERE stream IN (SELECT stream FROM found))
               SELECT (SELECT count(*) FROM fence), {}, (SELECT count(*) FROM found)",
            self.setting()
        )
    }

    /// Stores a group, if its fence holds; gives the number of its frames, or nothing. The server parses
    /// and plans it each time, so it has only the parts that the group needs.
    pub(crate) fn append(self, parts: GroupParts) -> String {
        let mut statement = FENCE.to_owned();
        for (is_there, part) in [
            (parts.streams, NEW_STREAMS),
            (parts.frames, NEW_FRAMES),
            (parts.blobs, NEW_BLOBS),
            (parts.rows, NEW_ROWS),
        ] {
            if is_there {
                statement.push_str(part);
            }
        }
        let setting = self.setting();
        statement.push_str(&format!(" SELECT count(*), {setting} FROM fence"));
        statement
    }
}

/// The fence of a group: holds if the epoch is `$1` and the head is `$2`.
const FENCE: &str = "WITH fence AS (
    UPDATE ledger SET head = head + cardinality($6::bigint[]), beat = beat + 1
    WHERE id = 1 AND epoch = $1 AND head = $2 RETURNING 1)";
const NEW_STREAMS: &str = ", new_streams AS (INSERT INTO streams (id, name)
    SELECT new.id, new.name FROM fence, unnest($3::bigint[], $4::text[]) AS new (id, name))";
const NEW_FRAMES: &str = ", new_frames AS (INSERT INTO frames (pos, stream, seq, hash, body)
    SELECT $2 + new.ord, new.stream, new.seq, new.hash, new.body FROM fence,
      unnest($5::bigint[], $6::bigint[], $7::bytea[], $8::text[]) WITH ORDINALITY
      AS new (stream, seq, hash, body, ord) ORDER BY new.ord)";
const NEW_BLOBS: &str = ", new_blobs AS (INSERT INTO blobs (hash, body)
    SELECT new.hash, new.body FROM fence, unnest($9::bytea[], $10::text[]) AS new (hash, body)
    ON CONFLICT (hash) DO NOTHING)";
const NEW_ROWS: &str = ", new_rows AS (INSERT INTO index_rows
    (stream, workflow, status, open, created_us, key, row, digest)
    SELECT new.* FROM fence, unnest($11::text[], $12::text[], $13::text[], $14::boolean[], $15::bigint[],
      $16::bytea[], $17::text[], $18::bytea[]) AS new
    ON CONFLICT (stream) DO UPDATE SET workflow = excluded.workflow, status = excluded.status,
      open = excluded.open, created_us = excluded.created_us, key = excluded.key, row = excluded.row,
      digest = excluded.digest)";
/// What a group brings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupParts {
    pub(crate) streams: bool,
    pub(crate) frames: bool,
    pub(crate) blobs: bool,
    pub(crate) rows: bool,
}

/// Begins a transaction of several statements. An owner that stops in the middle of it does not hold
/// another one up for longer than a lease.
pub(crate) const BEGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '4s'";
