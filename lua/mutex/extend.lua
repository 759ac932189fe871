-- Fragment: extends the hold of a mutex, if it is this owner's and alive; with a token, only the hold with that token. Returns
-- its token, or nil and '' (it is not the owner's), 'REVOKED' or the server's error.
--
local ENTRIES = 'entry'

local function extend(lock, owner, token, ttl)
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' then return nil, string.sub(value.err, 1, 9) == 'WRONGTYPE' and '' or value.err end
  -- A token with a zero in front is that of a lock that was released and is kept by min_hold, with two, that of a revoked one.
  local holder, zeros, held = string.match(value or '', '^2 (%x+:%d+) (0*)([1-9]%d*) ')
  if holder ~= owner or zeros == '0' or token and token ~= held then return nil, '' end
  if zeros ~= '' then return nil, 'REVOKED' end
  local extended = redis.pcall('PEXPIRE', lock, ttl) -- not SET: it works under OOM, and cannot re-create a key
  if type(extended) == 'table' then return nil, extended.err end
  return extended == 1 and held or nil, ''
end
