-- Adds events to the log: ARGV from `first` on, before which the log's bound and unit stand. The place of the last is the
-- version: it grows with the server's clock and never restarts. Without events a place is taken and given back.
-- Unit `us` counts microseconds, so that what was written to several shards one after the other stays in order.
local function stamp(log, argv, first)
  local unit, bound, trail, id = argv[first - 1], argv[first - 2], '', nil
  local none = #argv < first
  for i = first, none and first or #argv do
    local entry = argv[i] or ''
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
  if none then
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

