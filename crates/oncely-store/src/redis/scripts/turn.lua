-- Turns the gate of a shard, if the number of its last turn lies where it has to; else answers that number.
-- KEYS: head, turn, log, plan.  ARGV: ledger, lowest and highest number, the new number, the new head: all of it, or what
-- stands before and after the last id of a log that is shut; and whether the plan of what is brought stays.
local head = redis.call('GET', KEYS[1])
local gate = stands(head, ARGV[1])
if not gate then
  return refuse(head, ARGV[1])
end
local turn = tonumber(redis.call('GET', KEYS[2]) or '0')
if turn < tonumber(ARGV[2]) or turn > tonumber(ARGV[3]) then
  return {0, turn}
end
local last = string.match(head, '/(%d+%-%d+) ')
if ARGV[6] == '' then
  if last then
    redis.call('XSETID', KEYS[3], last)
  end
  redis.call('SET', KEYS[1], ARGV[5])
else
  if not last then
    -- A log that is not there cannot be shut.
    if redis.call('EXISTS', KEYS[3]) == 0 then
      redis.call('XDEL', KEYS[3], redis.call('XADD', KEYS[3], '*', '0', ''))
    end
    local info = redis.call('XINFO', 'STREAM', KEYS[3])
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then last = info[i + 1] end
    end
    redis.call('XSETID', KEYS[3], '18446744073709551615-18446744073709551615')
  end
  redis.call('SET', KEYS[1], ARGV[5] .. last .. ARGV[6])
end
redis.call('SET', KEYS[2], ARGV[4])
if ARGV[7] == '' then
  redis.call('DEL', KEYS[4])
end
return {1}
