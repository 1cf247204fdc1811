-- The statements of a program that knows version 2: making a record, replacing one, reading one.
PREPARE old_create (uuid, uuid, int8, int8, int8, int8, int2, text, text, text, text, bytea, bytea, bytea, int8) AS
WITH c AS MATERIALIZED (SELECT greatest($15, floor(date_part('epoch', clock_timestamp()) * 1000)::int8) AS now),
there AS MATERIALIZED (SELECT r.head, r.tail, r.version, r.created_at, r.sent_at, r.changed_at, r.namespace, r.tool, r.scope, r.key, r.body, r.result FROM "oncely".record r WHERE r.head = $1),
s AS MATERIALIZED (
  SELECT nextval('"oncely".commit_seq') AS seq, c.now, coalesce($3, c.now) AS changed
  FROM c WHERE NOT EXISTS (SELECT FROM there)
),
won AS (
  INSERT INTO "oncely".record (head, tail, id, version, due, created_at, sent_at, changed_at, state, namespace, tool,
    scope, key, trail, body, result)
  SELECT $1, $2, s.seq << 16, s.seq, CASE $6 WHEN -1 THEN 0 WHEN -2 THEN 1 ELSE greatest(2, s.changed + $6) END, coalesce($4, s.now), coalesce($5, s.now), s.changed, $7, $8, $9, $10, $11,
    CASE WHEN $14 IS NULL THEN '' ELSE int8send(s.seq) END, $12, $13
  FROM s ON CONFLICT (head) DO NOTHING RETURNING id
),
noted AS (
  INSERT INTO "oncely".audit (seq, at, events) SELECT s.seq, s.now, $14 FROM s, won WHERE $14 IS NOT NULL
)
SELECT c.now, won.id, r.*, current_setting('synchronous_commit') FROM c LEFT JOIN won ON true LEFT JOIN there r ON true;
PREPARE old_put (uuid, uuid, int8, int8, int8, int8, int8, int2, bytea, bytea, bytea, int8) AS
WITH c AS MATERIALIZED (SELECT nextval('"oncely".commit_seq') AS seq, greatest($12, floor(date_part('epoch', clock_timestamp()) * 1000)::int8) AS now),
won AS (
  UPDATE "oncely".record r SET version = c.seq, due = CASE $7 WHEN -1 THEN 0 WHEN -2 THEN 1 ELSE greatest(2, coalesce($4, c.now) + $7) END, created_at = coalesce($5, c.now),
    sent_at = coalesce($6, c.now), changed_at = coalesce($4, c.now), state = $8, body = $9, result = $10,
    trail = CASE WHEN $11 IS NULL THEN r.trail ELSE substr(r.trail || int8send(c.seq), greatest(1, length(r.trail) - 503)) END
  FROM c WHERE r.head = $1 AND r.tail = $2 AND r.version = $3 AND r.version < c.seq RETURNING r.id
),
noted AS (
  INSERT INTO "oncely".audit (seq, at, events) SELECT c.seq, c.now, $11 FROM c, won WHERE $11 IS NOT NULL
)
SELECT c.now, c.seq, won.id IS NOT NULL, EXISTS (SELECT FROM "oncely".waiting w WHERE w.head = $1), current_setting('synchronous_commit')
FROM c LEFT JOIN won ON true;
PREPARE old_load (uuid, int8) AS
SELECT c.now, r.head, r.tail, r.version, r.created_at, r.sent_at, r.changed_at, r.namespace, r.tool, r.scope, r.key, r.body, r.result FROM (SELECT greatest($2, floor(date_part('epoch', clock_timestamp()) * 1000)::int8) AS now) c LEFT JOIN "oncely".record r ON r.head = $1;
