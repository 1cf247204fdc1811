-- Reads a record, and writes a little behind it, so that replicas which confirm that have the record as well.
-- KEYS: record, mark.
-- Of a key that is of another type the answer says so, in the place of the record.
local there = redis.pcall('GET', KEYS[1])
local now = redis.call('TIME')
redis.call('SET', KEYS[2], now[1])
return {1, there, now[1], now[2]}
