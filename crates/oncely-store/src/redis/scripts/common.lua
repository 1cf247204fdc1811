-- Adds events to the log: `count` of ARGV from `first` on. The place of the last is the version: it grows with the server's
-- clock and never restarts. Without events a place is taken and given back.
-- Unit `us` counts microseconds, so that what was written to several shards one after the other stays in order.
local function stamp(log, bound, unit, first, count)
  local trail, id = '', nil
  for i = first, first + math.max(count, 1) - 1 do
    local entry = count > 0 and ARGV[i] or ''
    id = nil
    if unit == 'us' then
      local now = redis.call('TIME')
      id = string.format('%.0f-%d', now[1] * 1000 + math.floor(now[2] / 1000), now[2] % 1000)
      -- Refused if the log is there already, or the clock was set back: then the next place will do.
      id = redis.pcall('XADD', log, 'MAXLEN', '~', bound, id, 'e', entry)
    end
    if type(id) ~= 'string' then
      id = redis.call('XADD', log, 'MAXLEN', '~', bound, '*', 'e', entry)
    end
    trail = trail == '' and id or trail .. ',' .. id
  end
  if count == 0 then
    redis.call('XDEL', log, id)
    trail = ''
  end
  local dash = string.find(id, '-', 1, true)
  local ms, seq = tonumber(string.sub(id, 1, dash - 1)), tonumber(string.sub(id, dash + 1))
  if seq >= 1024 then
    -- Places have room for 2048 in a millisecond: go on in the next one.
    redis.call('XSETID', log, string.format('%.0f-0', ms + 1))
  end
  return id, ms, seq, trail
end

