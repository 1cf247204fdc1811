-- Joins two lists of places, of which the newest 64 are kept.
local function join(before, after)
  if not before or before == '' then return after end
  if after == '' then return before end
  local all = before .. ',' .. after
  -- A place takes at most 19 bytes with its comma, and hardly ever less than 16.
  if #all > 1000 then
    local _, commas = string.gsub(all, ',', ',')
    for _ = 64, commas do
      all = string.sub(all, string.find(all, ',', 1, true) + 1)
    end
  end
  return all
end

