-- The token bucket that is usually kept in a Redis script, for comparison.
-- Written in the common form, with the faults that come with it; not for use.
--
-- KEYS[1] = the bucket; ARGV = capacity, rate per second, now in seconds, cost

local capacity = tonumber(ARGV[1])
local rate = tonumber(ARGV[2])
-- Fault: the caller's clock. Callers differ, and a step back makes `elapsed` shrink.
local now = tonumber(ARGV[3])
local cost = tonumber(ARGV[4])

local state = redis.call('HMGET', KEYS[1], 'tokens', 'timestamp')
local tokens = tonumber(state[1]) or capacity
local timestamp = tonumber(state[2]) or now

local elapsed = math.max(0, now - timestamp)
-- Fault: fractions are dropped while the timestamp moves on, so a bucket that
-- is called more often than `rate` never refills.
tokens = math.min(capacity, tokens + math.floor(elapsed * rate))

local allowed = 0
if tokens >= cost then
  tokens = tokens - cost
  allowed = 1
end

-- Fault: a denial writes and is replicated just like an admission.
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'timestamp', now)
-- Fault: the key outlives what it says, or is deleted at once where this is
-- less than a second; and rate 0 is an error here.
redis.call('EXPIRE', KEYS[1], math.floor(capacity / rate * 2))

-- Fault: whoever is denied isn't told when to come back.
return { allowed, tokens }
