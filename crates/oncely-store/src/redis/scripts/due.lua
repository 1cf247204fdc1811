-- Lists what is past its time and cuts the end of the log.
-- KEYS: due, log.  ARGV: first place, limit, where rejected ones begin, how long events are kept, most events to drop.
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local last = string.format('%.0f', ms)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], last, 'LIMIT', 0, ARGV[2])
local rejected = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[3], string.format('%.0f', ARGV[3] + ms), 'LIMIT', 0, ARGV[2])
for i = 1, #rejected do
  due[#due + 1] = rejected[i]
end
local cut = 0
if ms > tonumber(ARGV[4]) then
  cut = redis.call('XTRIM', KEYS[2], 'MINID', '~', string.format('%.0f', ms - ARGV[4]), 'LIMIT', ARGV[5])
end
return {cut, due, now[1], now[2]}
