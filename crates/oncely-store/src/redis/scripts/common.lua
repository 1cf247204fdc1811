-- Adds events to the log, ARGV from after `bound` on, which holds the log's bound. The place of the last is the version:
-- it grows with the server's clock and never restarts. Without events a place is taken and given back.
local function stamp(log, argv, bound)
  local id, ids = nil, {}
  for i = bound + 1, #argv do
    id = redis.call('XADD', log, 'MAXLEN', '~', argv[bound], '*', 'e', argv[i])
    ids[#ids + 1] = id
  end
  if not id then
    id = redis.call('XADD', log, '*', 'e', '')
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

