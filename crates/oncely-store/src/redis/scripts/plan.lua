-- Remembers what a move is about to bring to several shards, so that whoever takes the move up can complete it.
-- KEYS: head, plan.  ARGV: what the head has to say, the plan.
local head = redis.call('GET', KEYS[1])
if not head or not string.find(head, ARGV[1], 1, true) then
  return refuse(head, ARGV[1])
end
redis.call('SET', KEYS[2], ARGV[2])
return {1}
