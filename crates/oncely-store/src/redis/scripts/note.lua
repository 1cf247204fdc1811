-- Writes events that change no record; where there is one, it remembers their place.
-- KEYS: record, log.  ARGV: log bound, events...
local id, ms, seq, trail = stamp(KEYS[2], ARGV, 1)
local there = redis.call('GET', KEYS[1])
if there then
  local version, before, body = string.match(there, '^([^\n]*)\n([^\n]*)\n(.*)$')
  redis.call('SET', KEYS[1], version .. '\n' .. join(before, trail) .. '\n' .. body, 'KEEPTTL')
end
return {1, id}
