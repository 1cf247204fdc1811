-- Adds to counters, once for each number that a handle gives to what it adds.
-- KEYS: counters, what was added last.  ARGV: number, how long to remember it, then counter and increment in turn.
-- Numbers only grow. One that was sent long ago may arrive behind a later one: it was sent again before that.
if tonumber(redis.call('GET', KEYS[2]) or '0') >= tonumber(ARGV[1]) then
  return {0}
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
for i = 3, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
end
return {1}
