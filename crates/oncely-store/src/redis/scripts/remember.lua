-- Remembers an entry of the log in the record that it tells of, or beside it if the record is gone.
local function remember(record, gone, entry, how_long)
  local there = redis.call('GET', record)
  if there then
    local version, before, body = string.match(there, '^([^\n]*)\n([^\n]*)\n(.*)$')
    redis.call('SET', record, version .. '\n' .. join(before, entry) .. '\n' .. body, 'KEEPTTL')
  else
    redis.call('SET', gone, join(redis.call('GET', gone), entry), 'PX', how_long)
  end
end

