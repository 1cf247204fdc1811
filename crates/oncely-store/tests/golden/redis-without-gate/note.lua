-- Writes events that change no record. Their place is remembered in the record, or else beside it.
-- KEYS: record, log, gone.  ARGV: how long to remember a place beside it, log bound, log unit, events...
local fields = {}
for i = 4, #ARGV do
  fields[#fields + 1] = i - 4
  fields[#fields + 1] = ARGV[i]
end
local entry = add(KEYS[2], ARGV[2], ARGV[3], fields, math.max(#ARGV - 3, 1))
local there = redis.call('GET', KEYS[1])
if there then
  local version, before, body = string.match(there, '^([^\n]*)\n([^\n]*)\n(.*)$')
  redis.call('SET', KEYS[1], version .. '\n' .. join(before, entry) .. '\n' .. body, 'KEEPTTL')
else
  redis.call('SET', KEYS[3], join(redis.call('GET', KEYS[3]), entry), 'PX', ARGV[1])
end
return {1, entry}
