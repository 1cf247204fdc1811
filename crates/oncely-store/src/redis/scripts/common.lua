-- Adds an entry to the log and answers its place, which grows with the server's clock and never restarts. `unit`: nothing,
-- or `us` to count microseconds, so that what was written to several shards one after the other stays in order.
local function add(log, unit, bound, entry)
  if unit == 'us' then
    local now = redis.call('TIME')
    local ms, us = now[1] * 1000 + math.floor(now[2] / 1000), now[2] % 1000
    local id = string.format('%.0f-%d', ms, us)
    -- Refused if the log is there already, or the clock was set back: then the next place will do.
    id = redis.pcall('XADD', log, 'MAXLEN', '~', bound, id, 'e', entry)
    if type(id) == 'string' then return id end
  end
  return redis.call('XADD', log, 'MAXLEN', '~', bound, '*', 'e', entry)
end

-- Adds events to the log: ARGV from `first` on, before which the log's bound and unit stand. The place of the last is the
-- version. Without events a place is taken and given back.
local function stamp(log, argv, first)
  local id, ids, unit, bound = nil, {}, argv[first - 1], argv[first - 2]
  for i = first, #argv do
    id = add(log, unit, bound, argv[i])
    ids[#ids + 1] = id
  end
  if not id then
    id = add(log, unit, bound, '')
    redis.call('XDEL', log, id)
  end
  local dash = string.find(id, '-', 1, true)
  local ms, seq = tonumber(string.sub(id, 1, dash - 1)), tonumber(string.sub(id, dash + 1))
  if seq >= 1024 then
    -- Places have room for 2048 in a millisecond: go on in the next one.
    redis.call('XSETID', log, string.format('%.0f-0', ms + 1))
  end
  return id, ms, seq, table.concat(ids, ',')
end

-- Joins two lists of places, of which the newest 64 are kept.
local function join(before, after)
  if before == nil or before == '' then return after end
  if after == '' then return before end
  local all = before .. ',' .. after
  local _, commas = string.gsub(all, ',', ',')
  for _ = 64, commas do
    all = string.sub(all, string.find(all, ',', 1, true) + 1)
  end
  return all
end

-- Writes a record. `keep`: nothing, or after how long the server may drop it.
local function put(key, id, trail, body, keep)
  local value = id .. '\n' .. trail .. '\n' .. body
  if keep == '' then
    redis.call('SET', key, value)
  else
    redis.call('SET', key, value, 'PX', keep)
  end
end

-- Files a record by when it is due, counted from `from`, or from now; nothing: it never is.
local function index(due, intent, ms, after, from, listed)
  if after ~= '' then
    if from ~= '' then ms = tonumber(from) end
    redis.call('ZADD', due, string.format('%.0f', ms + after), intent)
  elseif listed then
    redis.call('ZREM', due, intent)
  end
end

