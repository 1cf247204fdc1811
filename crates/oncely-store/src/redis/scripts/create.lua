-- Writes a record if there is none; else answers what is there. Knows nothing of states.
-- KEYS: record, log, order, due.  ARGV: intent, body, due, due from, keep, log bound, log unit, events...
local there = redis.call('GET', KEYS[1])
if there then
  local now = redis.call('TIME')
  return {0, there, now[1], now[2]}
end
local id, ms, seq, trail = stamp(KEYS[2], ARGV, 8)
put(KEYS[1], id, trail, ARGV[2], ARGV[5])
-- It was listed already: a record that outlived its time was dropped by the server, its entries stayed.
local listed = redis.call('ZADD', KEYS[3], string.format('%.0f', ms * 2048 + seq), ARGV[1]) == 0
index(KEYS[4], ARGV[1], ms, ARGV[3], ARGV[4], listed)
return {1, id}
