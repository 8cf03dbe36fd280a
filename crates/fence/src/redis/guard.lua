-- The fence: put it before a script of your own, and end where it refuses.
--
--     local refusal = holdline_fence(KEYS[1], ARGV[1], '')
--     if refusal then return refusal end
--
-- KEYS[1] is the mark, in the slot of what you write; ARGV[1] is the token, in digits.

-- Numbers are compared as doubles, which are exact up to 2^53 - 1, the largest token there is.
local function holdline_token(text)
    if text and #text <= 16 and string.find(text, '^[1-9]%d*$') then
        local number = tonumber(text)
        if number <= 9007199254740991 then return number end
    end
    return nil
end

-- Says why a token may not pass, or nothing. A `limit` of '' is none.
local function holdline_refusal(mark, token, limit)
    local mine = holdline_token(token)
    if not mine then return 'malformed' end
    local kind = redis.call('TYPE', mark)['ok']
    if kind == 'none' then return nil end
    if kind ~= 'string' then return 'foreign mark ' .. kind end
    local text = redis.call('GET', mark)
    local seen = holdline_token(text)
    if not seen then return 'foreign mark text' end
    if mine < seen then return 'stale ' .. text end
    if limit ~= '' and mine - seen > tonumber(limit) then return 'far ' .. text end
    return nil
end

-- Raises the mark, or says why not. A mark has no expiry: one that it was given is taken away.
local function holdline_fence(mark, token, limit)
    local refusal = holdline_refusal(mark, token, limit)
    if not refusal then redis.call('SET', mark, token) end
    return refusal
end

