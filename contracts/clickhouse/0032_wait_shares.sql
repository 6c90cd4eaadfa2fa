-- Which calls their caller waits for. `known`: calls of traces that show which calls one request made; `wait_calls`: those of
-- them that no call at the same time outlasts. Both are adjusted for sampling. Rows of before have 0 of both.
ALTER TABLE edge_parts
    ADD COLUMN IF NOT EXISTS known Float64 DEFAULT 0 CODEC(ZSTD) AFTER callers,
    ADD COLUMN IF NOT EXISTS wait_calls Float64 DEFAULT 0 CODEC(ZSTD) AFTER known;
-- Share of the calls that are waited for, from 0 to 1. NaN: not known.
ALTER TABLE call_ratios ADD COLUMN IF NOT EXISTS wait_share Float64 DEFAULT nan AFTER success_rate;
