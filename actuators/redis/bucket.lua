-- Token buckets of tenants in Redis, for any gateway. Call it by EVAL or EVALSHA; it is atomic.
--
--   KEYS  one tenant of one pool, three keys in one slot:
--         1  governor:{POOL}:tenant_cap:TENANT   the cap that Governor sets (hash; read only here)
--         2  governor:{POOL}:bucket:TENANT       the bucket (hash; this script's own)
--         3  governor:{POOL}:standing:TENANT     the tenant's standing limit, yours (hash; may be missing)
--   ARGV  take N   before a request: N tokens, the prompt and the answer that is expected
--         give N   after it: what it did not use; a negative N is what it used more
--         peek     looks, and writes nothing
--   gives {passes: 1 or 0, wait in ms: -1 = never, level, rate in tokens/s: "-1" = no limit}
--
-- The lower of cap and standing limit holds. A cap ends at its expires_at, also when its key is still there; then
-- the standing limit holds alone, and without one there is no limit. All time is Redis' own.
--
-- A bucket is settled before its rate changes, so that a new rate counts from the change on and not for the idle time
-- before it. `set` is Governor's own write: all of a batch or nothing, see actuator.py.

local BURST, SECONDS = 32768, 5 -- depth of a bucket whose limit says none: tokens or seconds of the rate, the larger

local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) + tonumber(t[2]) / 1e6
end

-- A number that can be a limit; anything else is as if it were not there.
local function limit(text)
  local n = tonumber(text or nil)
  if n and n >= 0 and n < 1e12 then return n end
end

local function exact(n) return string.format('%.6f', n) end -- tostring() would round a unix time to seconds

local function read(key)
  local f = redis.call('HMGET', key, 'value', 'burst', 'expires_at')
  local rate = limit(f[1])
  return rate, rate and (limit(f[2]) or math.max(BURST, SECONDS * rate)), tonumber(f[3] or nil) or 0
end

-- What holds now: rate, burst, and until when (0 = for good); nil without a limit.
local function terms(cap, standing, now)
  local rate, burst, till = read(cap)
  if rate and till > 0 and till <= now then rate = nil end
  local own, depth = read(standing)
  if own and (not rate or own < rate) then return own, depth, 0, own, depth end
  return rate, burst, till, own, depth
end

-- The level now by the terms the bucket was left with; nil when there is no bucket, or a time without limit since.
local function settled(key, now, own, depth)
  local f = redis.call('HMGET', key, 'level', 'at', 'rate', 'burst', 'until')
  local level, at, rate = tonumber(f[1] or nil), tonumber(f[2] or nil), tonumber(f[3] or nil)
  local burst, till = tonumber(f[4] or nil), tonumber(f[5] or nil) or 0
  if not (level and at and rate and burst) then return nil end
  at = math.min(at, now) -- a clock that went back earns nothing
  local stop = now
  if till > 0 and till < now then stop = math.max(till, at) end
  level = math.min(burst, level + rate * (stop - at))
  if stop == now then return level end
  if not own then return nil end
  return math.min(depth, level + own * (now - stop))
end

local function save(key, now, level, rate, burst, till)
  redis.call('HSET', key, 'level', exact(level), 'at', exact(now), 'rate', exact(rate), 'burst', exact(burst),
    'until', exact(till))
  if rate > 0 then -- forgotten a minute after it is full: a new one begins full
    redis.call('PEXPIRE', key, math.ceil(1000 * math.max(0, (burst - level) / rate)) + 60000)
  elseif till > 0 then
    redis.call('PEXPIREAT', key, math.ceil(1000 * till) + 60000)
  else
    redis.call('PERSIST', key)
  end
end

-- Under new terms from now on.
local function retune(key, now, level, cap, standing)
  local rate, burst, till = terms(cap, standing, now)
  if rate and level then
    save(key, now, math.min(level, burst), rate, burst, till)
  else
    redis.call('DEL', key)
  end
end

local function use(op, n)
  local now = clock()
  local rate, burst, till, own, depth = terms(KEYS[1], KEYS[3], now)
  if not rate then
    if op ~= 'peek' then redis.call('DEL', KEYS[2]) end
    return {1, 0, '-1', '-1'}
  end
  local level = math.min(burst, settled(KEYS[2], now, own, depth) or burst)
  local passes, wait = 1, 0
  if op == 'give' then
    level = math.min(burst, level + n)
  elseif level >= n then
    level = level - n
  else
    passes = 0
    wait = (n > burst or rate <= 0) and -1 or math.ceil(1000 * (n - level) / rate)
  end
  if op ~= 'peek' then save(KEYS[2], now, level, rate, burst, till) end
  return {passes, wait, exact(level), exact(rate)}
end

-- ARGV: set, a JSON list of {first, counter, value, text, neutral, burst, ttl, held, generation}, and who writes.
-- `text` is the value as it is to be read back, to the last digit; both are absent for the value that is no key at all.
-- `first` is the place of the target's hash in KEYS, with its bucket and standing limit behind it where `burst` is
-- given; `counter` that of its pool's generation. `held` are the values that may be there, `generation` the one it must
-- be of; nil where nothing is known. Everything is looked at before anything is written.
local function set(batch, by)
  local now, conflicts, before = clock(), {}, {}
  for i, w in ipairs(batch) do
    local f = redis.call('HMGET', KEYS[w.first], 'value', 'generation', 'by')
    local value = tonumber(f[1] or nil)
    if not f[1] then value = w.neutral end
    local expected = w.held == nil
    for _, one in ipairs(w.held or {}) do expected = expected or one == value end
    local final = w.value == nil and w.neutral or w.value
    if expected and w.generation and value ~= final then
      expected = w.generation == (tonumber(f[2] or nil) or 0)
    end
    if not expected then
      table.insert(conflicts, {i = i, value = tostring(f[1] or 'nothing'), by = tostring(f[3] or '')})
    end
    before[i] = f[1] or tostring(w.neutral)
    if w.burst then redis.call('HGET', KEYS[w.first + 1], 'level') end -- a key of another type fails here or not at all
    if not tonumber(redis.call('GET', KEYS[w.counter]) or 0) then error('the generation is no number') end
  end
  if #conflicts > 0 then return cjson.encode({conflicts = conflicts}) end
  local generations, numbers = {}, {}
  for i, w in ipairs(batch) do
    local key, level = KEYS[w.first], nil
    if w.burst then
      local _, _, _, own, depth = terms(key, KEYS[w.first + 2], now)
      level = settled(KEYS[w.first + 1], now, own, depth)
    end
    numbers[w.counter] = numbers[w.counter] or redis.call('INCR', KEYS[w.counter])
    generations[i] = numbers[w.counter]
    if w.value == nil then
      redis.call('DEL', key)
    else
      local till = w.ttl and now + w.ttl or 0
      redis.call('HSET', key, 'value', w.text, 'expires_at', exact(till), 'generation',
        generations[i], 'by', by, 'at', exact(now))
      if w.burst then redis.call('HSET', key, 'burst', exact(w.burst)) end
      if till > 0 then redis.call('PEXPIREAT', key, math.floor(1000 * till)) else redis.call('PERSIST', key) end
    end
    if w.burst then retune(KEYS[w.first + 1], now, level, key, KEYS[w.first + 2]) end
  end
  return cjson.encode({generations = generations, before = before})
end

local op = ARGV[1]
if op == 'take' or op == 'give' then
  local n = tonumber(ARGV[2])
  if not n or n ~= n or (op == 'take' and n < 0) then return redis.error_reply('ERR tokens: is no number from 0 on') end
  return use(op, n)
elseif op == 'peek' then
  return use(op, 0)
elseif op == 'set' then
  return set(cjson.decode(ARGV[2]), ARGV[3])
end
return redis.error_reply('ERR take, give, peek or set')
