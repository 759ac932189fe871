-- release after a success of a call that runs at most once per period or value. Records the success.
-- KEYS  lock fence record
-- ARGV  those of release.lua; the second has another line, 'token of the hold, gap ms, record ttl ms'
-- Reply that of `leave`, and ' recorded' if the record is that of this hold
--@include leave
--@include once/record
local l, owner, min_hold = open_release()
local succeeded, gap, record_ttl = string.match(ARGV[2], '\n(%d+) (%d+) (%d+)$')
local key, call = KEYS[3], l.call
local record = redis.pcall('GET', key)
local is_foreign = record and (type(record) ~= 'string' or not parse_record(record, call.now))
local hold = read_state(l, owner)
if hold then begin_write(l) end
-- Only the hold whose body succeeded, before the lock is free.
local is_recorded
if hold and hold.flag == 'h' and hold.token == succeeded and not is_foreign then
  local since = tonumber(hold.since) > call.now and call.now_text or hold.since -- the server's clock stepped back
  local written = redis.pcall('SET', key, '1 ' .. since .. ' ' .. gap .. ' ' .. hold.token .. ' ' .. call.now_text .. ' ' .. hold.name,
    'PX', math.max(redis.call('PTTL', key), record_ttl)) -- another caller's period may be longer
  is_recorded = not written.err
elseif record and not is_foreign then
  -- A release whose reply was lost is repeated.
  is_recorded = string.match(record, '^1 %d+ %d+ (%d+) ') == succeeded
end
return leave(l, owner, hold, min_hold) .. (is_recorded and ' recorded' or '')
