-- Writes records if there are none; else answers what is there. Knows nothing of states.
-- KEYS: log, order, due, head, and each record.  ARGV: what the head has to say, log bound, log unit, how long to remember
-- a removed one, publishing command; and of each record: intent, body, due, due from, keep, how many events, events...
-- The head has to say that this is the ledger and open; or, for what a move brings, that it is filled by that move.
local there = redis.call('MGET', unpack(KEYS, 4))
local head = there[1]
-- A shard that was emptied, or is another ledger's: whatever it has forgotten would be taken for new.
local fits = head and string.find(head, ARGV[1], 1, true)
local answers, new, fields, places, now, at = {}, {}, {}, 0, nil, 6
for i = 1, #KEYS - 4 do
  local count = tonumber(ARGV[at + 5])
  if there[i + 1] then
    now = now or redis.call('TIME')
    answers[i] = {0, there[i + 1], now[1], now[2]}
  elseif not fits then
    answers[i] = refuse(head, ARGV[1])
  else
    for e = 0, count - 1 do
      fields[#fields + 1] = places + e
      fields[#fields + 1] = ARGV[at + 6 + e]
    end
    places = places + math.max(count, 1)
    new[#new + 1] = {i, at, count, places - 1}
  end
  at = at + 6 + count
end
if #new == 0 then
  return answers
end
local is_shut = string.sub(ARGV[1], -1) == '/'
if is_shut then unshut(KEYS[1], head) end
local entry, ms, seq, last = add(KEYS[1], ARGV[2], ARGV[3], fields, places)
if is_shut then shut(KEYS[1], KEYS[4], head, last) end
local order, due = {}, {}
for n = 1, #new do
  local i, at, count, place = unpack(new[n])
  local id = place == 0 and entry or string.format('%.0f-%d', ms, seq + place)
  local value = id .. '\n' .. (count > 0 and entry or '') .. '\n' .. ARGV[at + 1]
  local is_set
  if ARGV[at + 4] == '' then
    is_set = redis.call('SET', KEYS[i + 4], value, 'NX')
  else
    is_set = redis.call('SET', KEYS[i + 4], value, 'NX', 'PX', ARGV[at + 4])
  end
  if is_set then
    order[#order + 1] = string.format('%.0f', ms * 2048 + seq + place)
    order[#order + 1] = ARGV[at]
    if ARGV[at + 2] ~= '' then
      local from = ARGV[at + 3] == '' and ms or tonumber(ARGV[at + 3])
      due[#due + 1] = string.format('%.0f', from + ARGV[at + 2])
      due[#due + 1] = ARGV[at]
    end
    answers[i] = {1, id}
  else
    -- MGET shows nothing of what is no string: it is somebody else's, or was put in the place of a record.
    answers[i] = {0}
  end
end
if #order > 0 and redis.call('ZADD', KEYS[2], unpack(order)) < #order / 2 then
  -- A record that outlived its time was dropped by the server, its entries stayed.
  for i = 2, #order, 2 do
    redis.call('ZREM', KEYS[3], order[i])
  end
end
if #due > 0 then
  redis.call('ZADD', KEYS[3], unpack(due))
end
return answers
