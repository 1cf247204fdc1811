-- Cuts the end of the log, before a time that was judged.
-- KEYS: log, head.  ARGV: ledger, the first millisecond that is kept, most events to drop.
local head = redis.call('GET', KEYS[2])
local gate = stands(head, ARGV[1])
if gate ~= '0' and gate ~= '1' then
  return refuse(head, ARGV[1])
end
return {redis.call('XTRIM', KEYS[1], 'MINID', '~', ARGV[2], 'LIMIT', ARGV[3])}
