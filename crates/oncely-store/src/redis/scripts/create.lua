-- Writes records if there are none; else answers what is there. Knows nothing of states.
-- KEYS: log, order, due, head, and each record, whose key ends with its intent.  ARGV: what the head has to say, log bound,
-- log unit, how long to remember a removed one, publishing command; and of each record: how it is filed, body, events...
-- How it is filed: due, due from, keep and how many events, with commas between; nothing if it is never due and has one.
-- If all were written, the answer is the first place alone: who asked knows how many each has taken.
-- The head has to say that this is the ledger and open; or, for what a move brings, that it is filled by that move.
local there = redis.call('MGET', unpack(KEYS, 4))
local head = there[1]
-- A shard that was emptied, or is another ledger's: whatever it has forgotten would be taken for new.
local fits = head and string.find(head, ARGV[1], 1, true)
-- MGET shows nothing of a key that is no string: it is somebody else's, or was put in the place of a record.
local found = 0
for i = 2, #there do
  if there[i] then found = found + 1 end
end
local is_any_taken = fits and found < #there - 1 and redis.call('EXISTS', unpack(KEYS, 5)) > found
local answers, new, fields, places, now, at = {}, {}, {}, 0, nil, 6
for i = 1, #KEYS - 4 do
  local after, from, keep, count = '', '', '', 1
  if ARGV[at] ~= '' then
    after, from, keep, count = string.match(ARGV[at], '^(%d*),(%d*),(%d*),(%d+)$')
    count = tonumber(count)
  end
  if there[i + 1] then
    now = now or redis.call('TIME')
    answers[i] = {0, there[i + 1], now[1], now[2]}
  elseif not fits then
    answers[i] = refuse(head, ARGV[1])
  elseif is_any_taken and redis.call('EXISTS', KEYS[i + 4]) == 1 then
    answers[i] = {0}
  else
    for e = 0, count - 1 do
      fields[#fields + 1] = places + e
      fields[#fields + 1] = ARGV[at + 2 + e]
    end
    places = places + math.max(count, 1)
    new[#new + 1] = {i, at, count, places - 1, after, from, keep}
  end
  at = at + 2 + count
end
if #new == 0 then
  return answers
end
local is_shut = string.sub(ARGV[1], -1) == '/'
if is_shut then unshut(KEYS[1], head) end
local entry, ms, seq, last = add(KEYS[1], ARGV[2], ARGV[3], fields, places)
if is_shut then shut(KEYS[1], KEYS[4], head, last) end
-- The id tells the server's clock, by which it forgets keys, unless that was set back and the log is ahead of it.
now = now or redis.call('TIME')
local is_behind = now[1] * 1000 + math.floor(now[2] / 1000) + 1000 < ms
local is_all = #new == #KEYS - 4 and not is_behind and not is_shut
local order, due, kept = {}, {}, {}
for n = 1, #new do
  local i, at, count, place, after, from, keep = unpack(new[n])
  local intent = string.sub(KEYS[i + 4], -32)
  local id = place == 0 and entry or string.format('%.0f-%d', ms, seq + place)
  local value = id .. '\n' .. (count > 0 and entry or '') .. '\n' .. ARGV[at + 1]
  if keep == '' then
    kept[#kept + 1] = KEYS[i + 4]
    kept[#kept + 1] = value
  else
    -- By the log's clock, which the stamps follow: the server's may be behind it, and be set right later.
    redis.call('SET', KEYS[i + 4], value, 'PXAT', string.format('%.0f', ms + keep))
  end
  order[#order + 1] = string.format('%.0f', ms * 2048 + seq + place)
  order[#order + 1] = intent
  if after ~= '' then
    local from = from == '' and ms or tonumber(from)
    due[#due + 1] = string.format('%.0f', from + after)
    due[#due + 1] = intent
  end
  if not is_all then
    answers[i] = is_behind and {1, id, now[1], now[2]} or {1, id}
  end
end
if #kept > 0 then
  redis.call('MSET', unpack(kept))
end
if redis.call('ZADD', KEYS[2], unpack(order)) < #order / 2 then
  -- A record that outlived its time was dropped by the server, its entries stayed.
  for i = 2, #order, 2 do
    redis.call('ZREM', KEYS[3], order[i])
  end
end
if #due > 0 then
  redis.call('ZADD', KEYS[3], unpack(due))
end
return is_all and entry or answers
