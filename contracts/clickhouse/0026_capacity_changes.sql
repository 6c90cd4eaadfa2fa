-- Since when a capacity is what it is: the first second after the newest change of latency or of the CPU use per request.
-- 1970: no change is remembered.
ALTER TABLE capacities ADD COLUMN IF NOT EXISTS changed_at DateTime('UTC') DEFAULT 0;
