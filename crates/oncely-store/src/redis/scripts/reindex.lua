-- Puts the entries of a record right: those of one that is gone are dropped, those of a known version set.
-- KEYS: record, order, due.  ARGV: intent, version or nothing for none, due.
local version = string.match(redis.call('GETRANGE', KEYS[1], 0, 63), '^([^\n]*)\n')
if version == nil and ARGV[2] == '' then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
elseif version == ARGV[2] then
  index(KEYS[3], ARGV[1], 0, ARGV[3], '0', true)
end
return {1}
