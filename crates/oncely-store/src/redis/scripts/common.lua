-- Adds an entry to the log that takes so many places, each with what its field holds. Answers its id, which is the first
-- place, in parts as well, and the last place: they grow with the server's clock and never restart. Without fields the
-- places are taken and no entry is left. Unit `us` counts microseconds, so that what was written to several shards one
-- after the other stays in order.
local function add(log, bound, unit, fields, places)
  local id, none = nil, #fields == 0
  if none then fields = {'0', ''} end
  if unit == 'us' then
    local now = redis.call('TIME')
    id = string.format('%.0f-%d', now[1] * 1000 + math.floor(now[2] / 1000), now[2] % 1000)
    -- Refused if the log is there already, or the clock was set back: then the next place will do.
    id = redis.pcall('XADD', log, 'MAXLEN', '~', bound, id, unpack(fields))
  end
  if type(id) ~= 'string' then
    id = redis.call('XADD', log, 'MAXLEN', '~', bound, '*', unpack(fields))
  end
  if none then
    redis.call('XDEL', log, id)
  end
  local dash = string.find(id, '-', 1, true)
  local ms, seq = tonumber(string.sub(id, 1, dash - 1)), tonumber(string.sub(id, dash + 1))
  local last = id
  if seq + places > 1024 then
    -- Places have room for 2048 in a millisecond: go on in the next one.
    last = string.format('%.0f-0', ms + 1)
    redis.call('XSETID', log, last)
  elseif places > 1 then
    last = string.format('%.0f-%d', ms, seq + places - 1)
    redis.call('XSETID', log, last)
  end
  return id, ms, seq, last
end

