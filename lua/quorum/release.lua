-- release: frees the owner's lock on this node.
-- KEYS  lock
-- ARGV  those of release.lua
-- Reply 'released' or 'not_held'
local lock, owner, min_hold = KEYS[1], string.sub(ARGV[1], 3, -2), string.match(ARGV[2], '^%d+')
local holder, zeros, token, since, name =
  string.match(redis.call('GET', lock) or '', '^3 (%x+:%d+) (0*)(%d+) %d+ (%d+) (.*)$')
if holder ~= owner or zeros == '0' then return 'not_held' end
redis.call('DEL', lock)
if min_hold ~= '0' then
  redis.call('SET', lock, '3 ' .. owner .. ' 0' .. token .. ' ' .. min_hold .. ' ' .. since .. ' ' .. name, 'PX', min_hold)
end
return 'released'
