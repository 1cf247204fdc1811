-- A ledger of version 2, as `oncely store migrate --print` printed it then.
BEGIN;
CREATE SCHEMA "oncely";
CREATE TABLE "oncely".ledger (
  one boolean NOT NULL DEFAULT true CONSTRAINT ledger_pkey PRIMARY KEY CHECK (one),
  version integer NOT NULL,
  oldest integer NOT NULL
);
INSERT INTO "oncely".ledger (version, oldest) VALUES (0, 0);
-- Version 1
CREATE SEQUENCE "oncely".commit_seq;
CREATE TABLE "oncely".record (
  head uuid NOT NULL CONSTRAINT record_pkey PRIMARY KEY,
  tail uuid NOT NULL,
  id bigint NOT NULL,
  version bigint NOT NULL,
  due bigint NOT NULL,
  created_at bigint NOT NULL,
  sent_at bigint NOT NULL,
  changed_at bigint NOT NULL,
  state smallint NOT NULL,
  namespace text COLLATE "C" NOT NULL,
  tool text COLLATE "C" NOT NULL,
  scope text COLLATE "C",
  key text COLLATE "C" NOT NULL,
  trail bytea NOT NULL,
  body bytea NOT NULL,
  result bytea
) WITH (
  fillfactor = 90, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 5000
);
ALTER TABLE "oncely".record ALTER body SET STORAGE EXTERNAL;
INSERT INTO "oncely".record
  SELECT md5('filler ' || n)::uuid, md5('')::uuid, -n, 0, 0, 0, 0, 0, 0, '', '', NULL, '', '',
    decode(repeat('00', 1800), 'hex'), NULL FROM generate_series(1, 1600) n;
DELETE FROM "oncely".record;
CREATE UNIQUE INDEX record_id ON "oncely".record (id);
CREATE INDEX record_due ON "oncely".record (due);
CREATE INDEX record_rejected ON "oncely".record (id) WHERE state = 3;
CREATE TABLE "oncely".audit (
  seq bigint NOT NULL CONSTRAINT audit_pkey PRIMARY KEY,
  at bigint NOT NULL,
  events bytea NOT NULL
) WITH (
  toast_tuple_target = 8160, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 5000
);
ALTER TABLE "oncely".audit ALTER events SET STORAGE EXTERNAL;
CREATE TABLE "oncely".forgotten (
  head uuid NOT NULL CONSTRAINT forgotten_pkey PRIMARY KEY,
  at bigint NOT NULL,
  trail bytea NOT NULL
);
CREATE TABLE "oncely".tally (
  namespace text COLLATE "C" NOT NULL,
  tool text COLLATE "C" NOT NULL,
  counter smallint NOT NULL,
  count bigint NOT NULL,
  CONSTRAINT tally_pkey PRIMARY KEY (namespace, tool, counter)
) WITH (fillfactor = 50);
CREATE UNLOGGED TABLE "oncely".waiting (
  head uuid NOT NULL CONSTRAINT waiting_pkey PRIMARY KEY,
  until bigint NOT NULL
) WITH (fillfactor = 50);
-- Version 2
CREATE TABLE "oncely".gate (
  one boolean NOT NULL DEFAULT true CONSTRAINT gate_pkey PRIMARY KEY CHECK (one),
  phase smallint NOT NULL,
  id bytea NOT NULL,
  run bigint NOT NULL,
  other text NOT NULL,
  shift_ms bigint NOT NULL,
  steady_since bigint NOT NULL
);
CREATE FUNCTION "oncely".gate() RETURNS trigger LANGUAGE plpgsql AS $gate$
DECLARE
  g "oncely".gate%ROWTYPE;
BEGIN
  SELECT * INTO g FROM "oncely".gate;
  IF g.phase = 1 AND (TG_TABLE_NAME = 'audit' OR TG_OP = 'DELETE') THEN
    RETURN coalesce(NEW, OLD);
  END IF;
  -- An attempt that begins is a row that is new, or one that is running from now on and has an event that tells of it.
  IF g.phase = 1 AND TG_OP = 'UPDATE' THEN
    IF NEW.state <> 1 OR NEW.trail = OLD.trail THEN
      RETURN NEW;
    END IF;
  END IF;
  IF g.phase = 3 AND current_setting('oncely.run', true) = g.run::text THEN
    RETURN coalesce(NEW, OLD);
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'ON001', MESSAGE = coalesce(g.other, ''), DETAIL = coalesce(g.phase, 0)::text;
END
$gate$;
CREATE TRIGGER gate BEFORE INSERT OR UPDATE OR DELETE ON "oncely".record
  FOR EACH ROW EXECUTE FUNCTION "oncely".gate();
CREATE TRIGGER gate BEFORE INSERT OR DELETE ON "oncely".audit FOR EACH ROW EXECUTE FUNCTION "oncely".gate();
ALTER TABLE "oncely".record DISABLE TRIGGER gate;
ALTER TABLE "oncely".audit DISABLE TRIGGER gate;
UPDATE "oncely".ledger SET version = 2, oldest = 1;
COMMIT;
