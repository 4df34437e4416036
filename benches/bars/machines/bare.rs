//! The bare insert: what a server takes from one connection that adds frames, and does nothing else.

use std::time::{Duration, Instant};

use ktsu_ledger::store::RawFrame;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use crate::postgres::Server;
use crate::table::{median, per_second};

/// As the store appends, without streams, blobs and index rows.
const INSERT: &str = "WITH fence AS (
    UPDATE ledger SET head = head + cardinality($2::bigint[]), beat = beat + 1
    WHERE id = 1 AND epoch = 0 AND head = $1 RETURNING 1)
  INSERT INTO frames (pos, stream, seq, hash, body)
  SELECT $1 + new.ord, new.stream, new.seq, new.hash, new.body
  FROM fence, unnest($2::bigint[], $3::bigint[], $4::bytea[], $5::text[]) WITH ORDINALITY
    AS new (stream, seq, hash, body, ord)";

/// A connection to the tables of a ledger of its own.
pub(super) struct BareInsert {
    runtime: Runtime,
    client: Client,
    statement: Statement,
    head: i64,
    groups: i64,
}

impl BareInsert {
    pub(super) fn open(server: &Server) -> Self {
        let (_, schema) = server.ledger();
        let address = server.address(&schema);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (client, statement) = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&address, NoTls).await.unwrap();
            tokio::spawn(connection);
            let statement = client.prepare(INSERT).await.unwrap();
            (client, statement)
        });
        Self {
            runtime,
            client,
            statement,
            head: 0,
            groups: 0,
        }
    }

    /// Inserts the frames as those of as many writers.
    fn insert(&mut self, frames: &[RawFrame]) {
        let count = i64::try_from(frames.len()).unwrap();
        let streams: Vec<i64> = (1..=count).collect();
        let seqs = vec![self.groups; frames.len()];
        let hashes: Vec<&[u8]> = frames.iter().map(|frame| frame.hash.as_slice()).collect();
        let bodies = frames.iter().map(|frame| str::from_utf8(&frame.body));
        let bodies: Vec<&str> = bodies.collect::<Result<_, _>>().unwrap();
        let values: [&(dyn ToSql + Sync); 5] = [&self.head, &streams, &seqs, &hashes, &bodies];
        let inserted = self.client.execute(&self.statement, &values);
        let inserted = self.runtime.block_on(inserted).unwrap();
        assert_eq!(inserted, frames.len() as u64);
        self.head += count;
        self.groups += 1;
    }

    /// Frames per second when these are inserted in groups of so many.
    pub(super) fn rate(&mut self, frames: &[RawFrame], group: usize, time: Duration) -> f64 {
        let (started, mut inserted) = (Instant::now(), 0);
        for group in frames.chunks(group.max(1)).cycle() {
            self.insert(group);
            inserted += group.len();
            if started.elapsed() >= time {
                break;
            }
        }
        per_second(inserted, started.elapsed())
    }

    /// The median time of inserting one frame.
    pub(super) fn commit(&mut self, frame: &RawFrame, rounds: usize) -> Duration {
        let one = std::slice::from_ref(frame);
        let mut times: Vec<Duration> = (0..rounds)
            .map(|_| {
                let started = Instant::now();
                self.insert(one);
                started.elapsed()
            })
            .collect();
        median(&mut times)
    }
}
