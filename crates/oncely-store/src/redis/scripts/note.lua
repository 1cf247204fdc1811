-- Writes events that change no record. Their place is remembered in the record, or else beside it.
-- KEYS: record, log, gone.  ARGV: how long to remember a place beside it, log bound, log unit, events...
local id, ms, seq, trail = stamp(KEYS[2], ARGV[2], ARGV[3], 4, #ARGV - 3)
local there = redis.call('GET', KEYS[1])
if there then
  local version, before, body = string.match(there, '^([^\n]*)\n([^\n]*)\n(.*)$')
  redis.call('SET', KEYS[1], version .. '\n' .. join(before, trail) .. '\n' .. body, 'KEEPTTL')
else
  redis.call('SET', KEYS[3], join(redis.call('GET', KEYS[3]), trail), 'PX', ARGV[1])
end
return {1, id}
