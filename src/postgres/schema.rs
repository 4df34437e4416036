//! The tables of a ledger on PostgreSQL. Persisted, keep stable; described in `docs/ledger-format.md`.
//!
//! Format 1: as declared here. Frames have the bytes that they have in a file.

/// The version of the schema and of its content.
pub const FORMAT: i32 = 1;

/// What a role needs to own a ledger, with its name and that of the schema, both quoted. It may append,
/// and delete what the triggers permit; the triggers and tables are not its own.
pub(crate) fn grants(role: &str, schema: &str) -> String {
    format!(
        "BEGIN;
         GRANT USAGE ON SCHEMA {schema} TO {role};
         GRANT SELECT ON ledger, streams, frames, blobs, removals, index_rows TO {role};
         GRANT UPDATE ON ledger TO {role};
         GRANT INSERT ON streams, frames, blobs, removals TO {role};
         GRANT DELETE ON frames, blobs TO {role};
         GRANT INSERT, UPDATE, DELETE ON index_rows TO {role};
         COMMIT"
    )
}

/// Everything that a new ledger consists of, in one transaction. A number of a stream is the position
/// of its first frame.
///
/// The names of streams and kinds are compared byte by byte (`COLLATE "C"`), as in a file. A frame or a blob changes
/// never, and is deleted only by a transaction that has recorded the removal of its stream.
pub(crate) const CREATE: &str = r#"
CREATE TABLE ledger (
  id integer PRIMARY KEY CHECK (id = 1),
  format integer NOT NULL,
  epoch bigint NOT NULL,
  head bigint NOT NULL,
  beat bigint NOT NULL,
  holder text NOT NULL,
  url text NOT NULL
);
CREATE TABLE streams (
  id bigint PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE frames (
  pos bigint PRIMARY KEY,
  stream bigint NOT NULL,
  seq bigint NOT NULL,
  hash bytea NOT NULL,
  body text NOT NULL,
  UNIQUE (stream, seq)
);
CREATE TABLE blobs (
  pos bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  hash bytea NOT NULL UNIQUE,
  body text NOT NULL
);
CREATE TABLE removals (
  stream bigint PRIMARY KEY,
  frames bigint NOT NULL,
  authority bigint NOT NULL,
  removed_in xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX removals_removed_in ON removals (removed_in);
CREATE TABLE index_rows (
  stream text COLLATE "C" PRIMARY KEY,
  workflow text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  open boolean NOT NULL,
  created_us bigint NOT NULL,
  key bytea UNIQUE DEFERRABLE INITIALLY DEFERRED,
  row text NOT NULL,
  digest bytea NOT NULL
);
CREATE INDEX index_rows_newest ON index_rows (created_us, stream);
CREATE INDEX index_rows_workflow ON index_rows (workflow, created_us, stream);
CREATE INDEX index_rows_status ON index_rows (status, created_us, stream);
CREATE INDEX index_rows_open ON index_rows (created_us, stream) WHERE open;

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '% never change', TG_TABLE_NAME; END $$;
CREATE FUNCTION refuse_deletion_of_frame() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
  IF EXISTS (SELECT FROM removals WHERE stream = OLD.stream AND removed_in = pg_current_xact_id()) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'frames stay';
END $$;
CREATE FUNCTION refuse_deletion_of_blob() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
  IF EXISTS (SELECT FROM removals WHERE removed_in = pg_current_xact_id()) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'blobs stay';
END $$;
CREATE FUNCTION refuse_fall() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
  IF NEW.epoch < OLD.epoch OR NEW.head < OLD.head OR NEW.beat < OLD.beat OR NEW.format < OLD.format THEN
    RAISE EXCEPTION 'epoch, head, beat and format only rise';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER frames_never_change BEFORE UPDATE ON frames FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER frames_stay BEFORE DELETE ON frames FOR EACH ROW EXECUTE FUNCTION refuse_deletion_of_frame();
CREATE TRIGGER frames_are_not_truncated BEFORE TRUNCATE ON frames EXECUTE FUNCTION refuse_change();
CREATE TRIGGER blobs_never_change BEFORE UPDATE ON blobs FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER blobs_stay BEFORE DELETE ON blobs FOR EACH ROW EXECUTE FUNCTION refuse_deletion_of_blob();
CREATE TRIGGER blobs_are_not_truncated BEFORE TRUNCATE ON blobs EXECUTE FUNCTION refuse_change();
CREATE TRIGGER streams_never_change BEFORE UPDATE OR DELETE ON streams FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER removals_never_change BEFORE UPDATE OR DELETE ON removals FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_only_rises BEFORE UPDATE ON ledger FOR EACH ROW EXECUTE FUNCTION refuse_fall();
CREATE TRIGGER streams_are_not_truncated BEFORE TRUNCATE ON streams EXECUTE FUNCTION refuse_change();
CREATE TRIGGER removals_are_not_truncated BEFORE TRUNCATE ON removals EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_is_not_truncated BEFORE TRUNCATE ON ledger EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_stays BEFORE DELETE ON ledger FOR EACH ROW EXECUTE FUNCTION refuse_change();

INSERT INTO ledger (id, format, epoch, head, beat, holder, url) VALUES (1, 1, 0, 0, 0, '', '');
"#;
