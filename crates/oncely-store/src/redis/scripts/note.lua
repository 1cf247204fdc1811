-- Writes events that change no record. Their place is remembered in the record, or else beside it.
-- KEYS: record, log, gone, head.  ARGV: ledger, how long to remember a place beside it, log bound, log unit, events...
local head = redis.call('GET', KEYS[4])
local gate = stands(head, ARGV[1])
if gate ~= '0' and gate ~= '1' then
  return refuse(head, ARGV[1])
end
local fields = {}
for i = 5, #ARGV do
  fields[#fields + 1] = i - 5
  fields[#fields + 1] = ARGV[i]
end
if gate ~= '0' then unshut(KEYS[2], head) end
local entry, _, _, last = add(KEYS[2], ARGV[3], ARGV[4], fields, math.max(#ARGV - 4, 1))
if gate ~= '0' then shut(KEYS[2], KEYS[4], head, last) end
remember(KEYS[1], KEYS[3], entry, ARGV[2])
return {1, entry}
