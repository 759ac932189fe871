-- Writes fields of a run's hash, whatever stands there, and keeps it for a while.
--
-- KEYS[1]  the hash of the run
-- ARGV     for how many seconds it is kept, then each field and its value
for i = 2, #ARGV, 2 do
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 'written'
