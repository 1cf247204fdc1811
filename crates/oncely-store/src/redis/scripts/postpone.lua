-- Has a record that cannot be read, or what is no record, looked at again later, if it is still listed as due.
-- KEYS: due.  ARGV: member, first place, where rejected ones begin, after how long.
local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '0')
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local base = score >= tonumber(ARGV[3]) and tonumber(ARGV[3]) or 0
if score >= tonumber(ARGV[2]) and score <= base + ms then
  redis.call('ZADD', KEYS[1], string.format('%.0f', base + ms + ARGV[4]), ARGV[1])
end
return {1}
