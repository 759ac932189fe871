-- acquire: takes a weight of the lock, or queues the owner for it. Idempotent for the same owner.
-- KEYS  lock fence
-- ARGV  those of acquire.lua, with 'kind capacity weight' before the request number
-- Reply that of `enter`, or 'late' {how, now}: applied too late
--@include enter
local now_text = server_time()
if now_text > ARGV[2] then return { 'late', tonumber(now_text) } end
local request, l = open_request(now_text, nil, string.match(ARGV[6], '^(%l+) (%d+) (%d+)$'))
return enter(l, request, read_state(l, request.owner))
