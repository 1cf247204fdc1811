-- Changes records whose version is the expected one; else answers what is there. Knows nothing of states.
-- KEYS: log, order, due, head, and of each record: itself, gone.  ARGV: ledger, log bound, log unit, how long to remember a
-- removed one, publishing command; and of each record: intent, version and a line feed, body or nothing to remove it,
-- due, due from, keep, 1 to tell of it, how many events, events...
local answers, due, at = {}, {}, 6
for i = 1, (#KEYS - 4) / 2 do
  local key, intent, version, count = KEYS[2 * i + 3], ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 7])
  local head = redis.call('GETRANGE', key, 0, 127)
  if string.sub(head, 1, #version) ~= version then
    local now = redis.call('TIME')
    answers[i] = {0, redis.call('GET', key), now[1], now[2]}
  else
    local from = #version + 1
    local to = string.find(head, '\n', from, true)
    if not to then
      head = redis.call('GETRANGE', key, 0, 4095)
      to = string.find(head, '\n', from, true)
    end
    local id, ms, seq, trail = stamp(KEYS[1], ARGV[2], ARGV[3], at + 8, count)
    trail = join(string.sub(head, from, to - 1), trail)
    if ARGV[at + 2] == '' then
      redis.call('DEL', key)
      redis.call('ZREM', KEYS[2], intent)
      redis.call('ZREM', KEYS[3], intent)
      -- What is removed without a word about it (a purge) leaves no trace.
      if count > 0 then
        local gone = KEYS[2 * i + 4]
        redis.call('SET', gone, join(redis.call('GET', gone), trail), 'PX', ARGV[4])
      end
    else
      local value = id .. '\n' .. trail .. '\n' .. ARGV[at + 2]
      if ARGV[at + 5] == '' then
        redis.call('SET', key, value)
      else
        redis.call('SET', key, value, 'PX', ARGV[at + 5])
      end
      if ARGV[at + 3] == '' then
        redis.call('ZREM', KEYS[3], intent)
      else
        if ARGV[at + 4] ~= '' then ms = tonumber(ARGV[at + 4]) end
        due[#due + 1] = string.format('%.0f', ms + ARGV[at + 3])
        due[#due + 1] = intent
      end
    end
    if ARGV[at + 6] ~= '' and ARGV[5] ~= '' then
      -- Whoever may not publish has written all the same: those who wait look by themselves.
      redis.pcall(ARGV[5], key, id)
    end
    answers[i] = {1, id}
  end
  at = at + 8 + count
end
if #due > 0 then
  redis.call('ZADD', KEYS[3], unpack(due))
end
return answers
