-- Puts the entries of a record right: those of one that is gone are dropped, those of a known version set.
-- KEYS: record, order, due.  ARGV: intent, version and a line feed or nothing for none, due.
local head = redis.call('GETRANGE', KEYS[1], 0, 63)
if head == '' and ARGV[2] == '' then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
elseif ARGV[2] ~= '' and string.sub(head, 1, #ARGV[2]) == ARGV[2] then
  if ARGV[3] == '' then
    redis.call('ZREM', KEYS[3], ARGV[1])
  else
    redis.call('ZADD', KEYS[3], ARGV[3], ARGV[1])
  end
end
return {1}
