-- Remembers an entry of the log in the record that it tells of, or beside it if the record is gone or cannot be read.
local function remember(record, gone, entry, how_long)
  local there, version, before, body = redis.pcall('GET', record), nil, nil, nil
  if type(there) == 'string' then
    version, before, body = string.match(there, '^([^\n]*)\n([^\n]*)\n(.*)$')
  end
  if version then
    redis.call('SET', record, version .. '\n' .. join(before, entry) .. '\n' .. body, 'KEEPTTL')
  else
    redis.call('SET', gone, join(redis.call('GET', gone), entry), 'PX', how_long)
  end
end

