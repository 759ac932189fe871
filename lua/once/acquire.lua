-- acquire of a call that runs at most once per period or value. It is rejected while a success record says so.
-- KEYS  those of acquire.lua, then the record
-- ARGV  those of acquire.lua; the second has another line, 'gap ms, record ttl ms'
-- Reply that of acquire.lua, or 'ran' {how, now, record}: already ran, or distlock did not write the record; nothing was taken or
--       queued
--@include once/record
do
  local gap, record_ttl = string.match(ARGV[2], '\n(%d+) (%d+)$')
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local record = redis.call('GET', KEYS[3])
  if record then
    local since, rest = parse_record(record, now)
    if not since then return { 'ran', now, record, ARGV[6] } end
    -- A hold that was granted to this owner is judged by its acquisition, as in once/confirm.lua.
    -- The value of another type is no hold of this owner.
    local value = redis.pcall('GET', KEYS[1])
    local holder, acquired = string.match(type(value) == 'string' and value or '', '^(2 %x+:%d+ )[1-9]%d* %d+ (%d+) ')
    local start = holder == ARGV[1] and math.min(acquired, now) or now
    if tonumber(since) > now then
      -- The server's clock stepped back. PEXPIRE is first, because a server that rejects writes stops there.
      since = string.format('%.0f', now)
      record = '1 ' .. since .. rest
      redis.call('PEXPIRE', KEYS[3], math.max(redis.call('PTTL', KEYS[3]), record_ttl))
      redis.call('SET', KEYS[3], record, 'KEEPTTL')
    end
    if since + gap * 1000 > start then
      -- A caller with a shorter period may have written the record. It must last for this one.
      local needed = record_ttl - math.floor((now - since) / 1000)
      if redis.call('PTTL', KEYS[3]) < needed then redis.call('PEXPIRE', KEYS[3], needed) end
      return { 'ran', now, record, ARGV[6] }
    end
  end
end
--@include acquire
