-- Fragment: extends one hold of a counted lock, as `mutex/extend.lua` does that of a mutex.
--
local ENTRIES = 'queue'

local function extend(lock, owner, token, ttl, now_text)
  local found = redis.pcall('HMGET', lock, owner, 'state')
  if found.err then return nil, string.sub(found.err, 1, 9) == 'WRONGTYPE' and '' or found.err end
  local flag, expires, _, rest, held = string.match(found[1] or '', '^(%l) (%d+) (%d+) ((%d+) .*)$')
  local state, next_expiry, at = string.match(found[2] or '', '^(3 %l+ %d+ %d+ %S+) (%d+) (%d+)$')
  if not state or not flag or expires <= now_text or flag == 'k' or token and token ~= held then return nil, '' end
  if flag == 'r' then return nil, 'REVOKED' end
  expires = string.format('%.0f', now_text + ttl * 1000)
  if expires < next_expiry then next_expiry = expires end
  if at < now_text then at = now_text end -- never back: the next sweep shortens the other records
  local written = redis.pcall('PEXPIRE', lock, math.max(redis.call('PTTL', lock), ttl + 100))
  if type(written) == 'number' then
    written = redis.pcall('HSET', lock, owner, 'h ' .. expires .. ' ' .. ttl .. ' ' .. rest,
      'state', state .. ' ' .. next_expiry .. ' ' .. at)
  end
  if type(written) == 'table' then return nil, written.err end
  return held
end
