-- Writes what is left of an item and marks the order as fulfilled, unless a later lock holder has
-- written already.
--
-- KEYS[1]  the hash of the run
-- ARGV     item id, order id, quantity left, number of updates, fencing token
-- Reply    "written", "stale", or "gone" when the run's data is not there
local item = ARGV[1]
local fence = redis.call('HGET', KEYS[1], 'fence:' .. item)
if not fence then
    return 'gone'
end
-- Tokens are below 2^53, so numbers compare exactly.
if tonumber(fence) > tonumber(ARGV[5]) then
    return 'stale'
end
redis.call('HSET', KEYS[1],
    'quantity:' .. item, ARGV[3],
    'updates:' .. item, ARGV[4],
    'fence:' .. item, ARGV[5],
    'order:' .. ARGV[2], 'fulfilled')
return 'written'
