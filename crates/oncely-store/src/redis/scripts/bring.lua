-- Adds an entry of events that a move brings, under an id that was chosen for it. Repeated, it changes nothing.
-- KEYS: log, head, and of each record that it tells of: itself, gone.  ARGV: what the head has to say, id, last place, how
-- long to remember a removed one, then the fields of the entry and what they hold.
local head = redis.call('GET', KEYS[2])
if not head or not string.find(head, ARGV[1], 1, true) then
  return refuse(head, ARGV[1])
end
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)%-(%d+)$')
  return tonumber(ms), tonumber(seq)
end
local last_ms, last_seq = parts(string.match(head, '/(%d+%-%d+) '))
local ms, seq = parts(ARGV[2])
if ms < last_ms or (ms == last_ms and seq <= last_seq) then
  -- It is there already; this write behind it lets replicas confirm it.
  redis.call('SET', KEYS[2], head)
  return {1}
end
unshut(KEYS[1], head)
redis.call('XADD', KEYS[1], ARGV[2], unpack(ARGV, 5))
for i = 3, #KEYS, 2 do
  remember(KEYS[i], KEYS[i + 1], ARGV[2], ARGV[4])
end
shut(KEYS[1], KEYS[2], head, ARGV[3])
return {1}
