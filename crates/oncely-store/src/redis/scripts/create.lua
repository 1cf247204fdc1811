-- Writes a record if there is none; else answers what is there. Knows nothing of states.
-- KEYS: record, log, order, due, head.  ARGV: intent, body, due, due from, keep, ledger, log bound, log unit, events...
local there = redis.call('MGET', KEYS[1], KEYS[5])
if there[1] then
  local now = redis.call('TIME')
  return {0, there[1], now[1], now[2]}
end
-- A shard that was emptied, or is another ledger's: whatever it has forgotten would be taken for new.
if not there[2] or not string.find(there[2], ARGV[6], 1, true) then
  return redis.error_reply('LOSTHEAD the shard does not belong to this ledger')
end
local id, ms, seq, trail = stamp(KEYS[2], ARGV, 9)
local value = id .. '\n' .. trail .. '\n' .. ARGV[2]
if ARGV[5] == '' then
  redis.call('SET', KEYS[1], value)
else
  redis.call('SET', KEYS[1], value, 'PX', ARGV[5])
end
local listed = redis.call('ZADD', KEYS[3], string.format('%.0f', ms * 2048 + seq), ARGV[1]) == 0
if ARGV[3] ~= '' then
  if ARGV[4] ~= '' then ms = tonumber(ARGV[4]) end
  redis.call('ZADD', KEYS[4], string.format('%.0f', ms + ARGV[3]), ARGV[1])
elseif listed then
  -- A record that outlived its time was dropped by the server, its entries stayed.
  redis.call('ZREM', KEYS[4], ARGV[1])
end
return {1, id}
