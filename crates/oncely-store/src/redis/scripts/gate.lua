-- The gate of a shard stands in its head. While it is not open, the log is shut as well: its last id is the last one that
-- there can be, so that programs which do not look at the gate cannot add to it either. Which id is really the last then
-- stands at the end of the gate in the head.

-- How the gate stands: 0 open, 1 closing, 2 closed, 3 filling; nothing if the shard is not this ledger's.
local function stands(head, mark)
  if not head then return nil end
  if string.find(head, mark, 1, true) then return '0' end
  local ours, to = string.find(head, string.sub(mark, 1, -2) .. '/', 1, true)
  return ours and string.sub(head, to + 3, to + 3)
end

-- The refusal for a shard whose head does not say what it has to.
local function refuse(head, mark)
  if head and string.find(head, string.match(mark, '^ %d+ %x+'), 1, true) then
    return redis.error_reply('GATED ' .. head)
  end
  return redis.error_reply('LOSTHEAD the shard does not belong to this ledger')
end

-- Lets a log that is shut take entries.
local function unshut(log, head)
  redis.call('XSETID', log, string.match(head, '/(%d+%-%d+) '))
end

-- Shuts it again, behind this id.
local function shut(log, key, head, last)
  redis.call('SET', key, (string.gsub(head, '/%d+%-%d+ ', '/' .. last .. ' ')))
  redis.call('XSETID', log, '18446744073709551615-18446744073709551615')
end

