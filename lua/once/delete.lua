-- delete: deletes a success record, so that the work may run again.
-- KEYS  record
-- Reply {1} there was a record   {0} there was none
--@include once/record
local record = redis.call('GET', KEYS[1])
if record and not parse_record(record, redis.call('TIME')[1] * 1000000) then
  error('FOREIGN the record holds a foreign value')
end
return { redis.call('DEL', KEYS[1]) }
