-- delete: deletes a success record, so that the work may run again.
-- KEYS  record
-- Reply {1} there was a record   {0} there was none
return { redis.call('DEL', KEYS[1]) }
