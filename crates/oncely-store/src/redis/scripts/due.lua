-- Lists what is past its time by the server's clock, and tells that clock. Changes nothing: whether the clock has leapt is
-- judged by who asked.
-- KEYS: due, head.  ARGV: ledger, first place, limit, where rejected ones begin.
local head = redis.call('GET', KEYS[2])
local gate = stands(head, ARGV[1])
if gate ~= '0' and gate ~= '1' then
  return refuse(head, ARGV[1])
end
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local last = string.format('%.0f', ms)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[2], last, 'LIMIT', 0, ARGV[3])
local rejected = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[4], string.format('%.0f', ARGV[4] + ms), 'LIMIT', 0, ARGV[3])
for i = 1, #rejected do
  due[#due + 1] = rejected[i]
end
return {0, due, now[1], now[2]}
