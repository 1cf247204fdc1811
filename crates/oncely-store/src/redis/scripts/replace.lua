-- Changes records whose version is the expected one; else answers what is there. Knows nothing of states.
-- KEYS: log, order, due, head, and of each record: itself, which ends with its intent, and gone if it is removed.  ARGV:
-- ledger, log bound, log unit, how long to remember a removed one, publishing command; and of each record: version and a line
-- feed, how it is filed, body or nothing to remove it, events...  How it is filed: due, due from, keep, t to tell of it and b
-- if an attempt begins, how many events, with commas between.
-- If all were written, the answer is the first place alone: who asked knows how many each has taken.
local head_text = redis.call('GET', KEYS[4])
local gate = stands(head_text, ARGV[1])
local answers, won, fields, places, at, k, i = {}, {}, {}, 0, 6, 5, 1
while k <= #KEYS do
  local key, version = KEYS[k], ARGV[at]
  local after, since, keep, flags, count = string.match(ARGV[at + 1], '^(%d*),(%d*),(%d*),(%a*),(%d+)$')
  count = tonumber(count)
  local head = redis.pcall('GETRANGE', key, 0, 127)
  if type(head) == 'table' then
    -- Something else than a record lies there.
    answers[i] = {0}
  elseif string.sub(head, 1, #version) ~= version then
    local now = redis.call('TIME')
    answers[i] = {0, redis.call('GET', key), now[1], now[2]}
  elseif gate ~= '0' and (gate ~= '1' or string.find(flags, 'b', 1, true)) then
    answers[i] = refuse(head_text, ARGV[1])
  else
    local from = #version + 1
    local to = string.find(head, '\n', from, true)
    if not to then
      head = redis.call('GETRANGE', key, 0, 4095)
      -- A damaged one has no trail.
      to = string.find(head, '\n', from, true) or from
    end
    for e = 0, count - 1 do
      fields[#fields + 1] = places + e
      fields[#fields + 1] = ARGV[at + 3 + e]
    end
    places = places + math.max(count, 1)
    won[#won + 1] = {i, k, at, count, places - 1, string.sub(head, from, to - 1), after, since, keep, flags}
  end
  i, k, at = i + 1, k + (ARGV[at + 2] == '' and 2 or 1), at + 3 + count
end
if #won == 0 then
  return answers
end
if gate ~= '0' then unshut(KEYS[1], head_text) end
local entry, ms, seq, last = add(KEYS[1], ARGV[2], ARGV[3], fields, places)
if gate ~= '0' then shut(KEYS[1], KEYS[4], head_text, last) end
local is_all, due = #won == i - 1, {}
for n = 1, #won do
  local i, k, at, count, place, before, after, since, keep, flags = unpack(won[n])
  local key, intent = KEYS[k], string.sub(KEYS[k], -32)
  local id = place == 0 and entry or string.format('%.0f-%d', ms, seq + place)
  local trail = join(before, count > 0 and entry or '')
  if ARGV[at + 2] == '' then
    redis.call('DEL', key)
    redis.call('ZREM', KEYS[2], intent)
    redis.call('ZREM', KEYS[3], intent)
    -- What is removed without a word about it (a purge) leaves no trace.
    if count > 0 then
      local gone = KEYS[k + 1]
      redis.call('SET', gone, join(redis.call('GET', gone), trail), 'PX', ARGV[4])
    end
  else
    local value = id .. '\n' .. trail .. '\n' .. ARGV[at + 2]
    if keep == '' then
      redis.call('SET', key, value)
    else
      -- By the log's clock, which the stamps follow: the server's may be behind it, and be set right later.
      redis.call('SET', key, value, 'PXAT', string.format('%.0f', ms + keep))
    end
    if after == '' then
      redis.call('ZREM', KEYS[3], intent)
    else
      local from = since == '' and ms or tonumber(since)
      due[#due + 1] = string.format('%.0f', from + after)
      due[#due + 1] = intent
    end
  end
  if ARGV[5] ~= '' and string.find(flags, 't', 1, true) then
    -- Whoever may not publish has written all the same: those who wait look by themselves.
    redis.pcall(ARGV[5], key, id)
  end
  if not is_all then
    answers[i] = {1, id}
  end
end
if #due > 0 then
  redis.call('ZADD', KEYS[3], unpack(due))
end
return is_all and entry or answers
