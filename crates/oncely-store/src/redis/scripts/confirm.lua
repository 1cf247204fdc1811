-- Reads a record, and writes a little behind it, so that replicas which confirm that have the record as well.
-- KEYS: record, mark.
local now = redis.call('TIME')
redis.call('SET', KEYS[2], now[1])
return {1, redis.call('GET', KEYS[1]), now[1], now[2]}
