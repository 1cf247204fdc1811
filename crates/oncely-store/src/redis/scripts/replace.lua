-- Changes a record if its version is the expected one; else answers what is there. Knows nothing of states.
-- KEYS: record, log, order, due, gone.  ARGV: intent, version and a line feed, body or nothing to remove it, due, due from,
-- keep, publishing command, how long to remember a removed one, log bound, log unit, events...
local head = redis.call('GETRANGE', KEYS[1], 0, 127)
if string.sub(head, 1, #ARGV[2]) ~= ARGV[2] then
  local now = redis.call('TIME')
  return {0, redis.call('GET', KEYS[1]), now[1], now[2]}
end
local from = #ARGV[2] + 1
local to = string.find(head, '\n', from, true)
if not to then
  head = redis.call('GETRANGE', KEYS[1], 0, 4095)
  to = string.find(head, '\n', from, true)
end
local id, ms, seq, trail = stamp(KEYS[2], ARGV, 11)
trail = join(string.sub(head, from, to - 1), trail)
if ARGV[3] == '' then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
  redis.call('ZREM', KEYS[4], ARGV[1])
  if ARGV[8] ~= '' then
    redis.call('SET', KEYS[5], join(redis.call('GET', KEYS[5]), trail), 'PX', ARGV[8])
  end
else
  local value = id .. '\n' .. trail .. '\n' .. ARGV[3]
  if ARGV[6] == '' then
    redis.call('SET', KEYS[1], value)
  else
    redis.call('SET', KEYS[1], value, 'PX', ARGV[6])
  end
  if ARGV[4] ~= '' then
    if ARGV[5] ~= '' then ms = tonumber(ARGV[5]) end
    redis.call('ZADD', KEYS[4], string.format('%.0f', ms + ARGV[4]), ARGV[1])
  else
    redis.call('ZREM', KEYS[4], ARGV[1])
  end
end
if ARGV[7] ~= '' then
  -- Whoever may not publish has written all the same: those who wait look by themselves.
  redis.pcall(ARGV[7], KEYS[1], id)
end
return {1, id}
