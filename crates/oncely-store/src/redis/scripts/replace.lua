-- Changes a record if its version is the expected one; else answers what is there. Knows nothing of states.
-- KEYS: record, log, order, due, gone.  ARGV: intent, version, body or nothing to remove it, due, due from, keep,
-- publishing command, how long to remember a removed one, log bound, log unit, events...
local head = redis.call('GETRANGE', KEYS[1], 0, 127)
local version = string.match(head, '^([^\n]*)\n')
if version ~= ARGV[2] then
  local now = redis.call('TIME')
  return {0, redis.call('GET', KEYS[1]), now[1], now[2]}
end
local before = string.match(head, '^[^\n]*\n([^\n]*)\n')
if not before then
  before = string.match(redis.call('GETRANGE', KEYS[1], 0, 4095), '^[^\n]*\n([^\n]*)\n')
end
local id, ms, seq, trail = stamp(KEYS[2], ARGV, 11)
trail = join(before, trail)
if ARGV[3] == '' then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
  redis.call('ZREM', KEYS[4], ARGV[1])
  if ARGV[8] ~= '' then
    redis.call('SET', KEYS[5], join(redis.call('GET', KEYS[5]) or '', trail), 'PX', ARGV[8])
  end
else
  put(KEYS[1], id, trail, ARGV[3], ARGV[6])
  index(KEYS[4], ARGV[1], ms, ARGV[4], ARGV[5], true)
end
if ARGV[7] ~= '' then
  -- Whoever may not publish has written all the same: those who wait look by themselves.
  redis.pcall(ARGV[7], KEYS[1], id)
end
return {1, id}
