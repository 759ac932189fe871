-- confirm of a call that runs at most once per period or value
-- KEYS  those of confirm.lua, then the record
-- ARGV  those of confirm.lua, then gap ms
-- Reply that of confirm.lua, or 'ran' {how, now, record}: nothing was confirmed
--@include once/record
do
  local value = redis.pcall('GET', KEYS[1])
  local acquired = string.match(type(value) == 'string' and value or '', '^2 ' .. ARGV[1] .. ' [1-9]%d* %d+ (%d+) ')
  local record = redis.call('GET', KEYS[2])
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local since = record and parse_record(record, now)
  if acquired and since then
    -- Judged by the acquisition, with which a success will be recorded. The grant may be a second old.
    if since + ARGV[3] * 1000 > math.min(acquired, now) then return { 'ran', now, record } end
  end
end
--@include confirm
