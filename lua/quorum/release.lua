-- release: frees the owner's lock on this node.
-- KEYS  lock
-- ARGV  owner, keep ms (min_hold: the key stays taken this long)
-- Reply 1 if the owner had the lock, otherwise 0
local lock, owner, min_hold = KEYS[1], ARGV[1], ARGV[2]
local holder, zeros, token, since, name =
  string.match(redis.call('GET', lock) or '', '^3 (%x+:%d+) (0*)(%d+) %d+ (%d+) (.*)$')
if holder ~= owner or zeros == '0' then return 0 end
redis.call('DEL', lock)
if min_hold ~= '0' then
  redis.call('SET', lock, '3 ' .. owner .. ' 0' .. token .. ' ' .. min_hold .. ' ' .. since .. ' ' .. name, 'PX', min_hold)
end
return 1
