-- Raises counters to the totals that a move brings, where they are lower.
-- KEYS: counters, head.  ARGV: what the head has to say, then counter and total in turn.
local head = redis.call('GET', KEYS[2])
if not head or not string.find(head, ARGV[1], 1, true) then
  return refuse(head, ARGV[1])
end
for i = 2, #ARGV, 2 do
  if tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or '0') < tonumber(ARGV[i + 1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return {1}
