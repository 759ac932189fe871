-- release after a success of a call that runs at most once per period or value. Records the success.
-- KEYS  those of release.lua, then the record
-- ARGV  those of release.lua, with 'token of the hold, gap ms, record ttl ms' before the request number
-- Reply that of release.lua, and ' recorded' if the record is that of this hold
do
  --@include once/record
  local succeeded, gap, record_ttl = string.match(table.remove(ARGV, 4), '^(%d+) (%d+) (%d+)$')
  local lock, key = KEYS[1], KEYS[5]
  local record = redis.pcall('GET', key)
  local time = redis.call('TIME')
  local now = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
  local is_foreign = record and (type(record) ~= 'string' or not parse_record(record, tonumber(now)))
  -- Only the hold whose body succeeded, before the lock is free. A leading zero marks a kept or revoked lock.
  local token, max_ttl, since, name = string.match(redis.call('GET', lock) or '',
    '^2 ' .. ARGV[1] .. ' ([1-9]%d*) (%d+) (%d+) (.*)$')
  local is_recorded
  if token == succeeded and not is_foreign then
    if tonumber(since) > tonumber(now) then since = now end -- the server's clock stepped back
    redis.call('PEXPIRE', lock, max_ttl) -- a server that rejects writes stops here; after it, SET works without memory
    local written = redis.pcall('SET', key, '1 ' .. since .. ' ' .. gap .. ' ' .. token .. ' ' .. now .. ' ' .. name,
      'PX', math.max(redis.call('PTTL', key), record_ttl)) -- another caller's period may be longer
    is_recorded = not written.err
  elseif record and not is_foreign then
    -- A release whose reply was lost is repeated.
    is_recorded = string.match(record, '^1 %d+ %d+ (%d+) ') == succeeded
  end
  -- The replies of release.lua end with this argument.
  if is_recorded then ARGV[4] = 'recorded ' .. ARGV[4] end
end
--@include release
