-- Which call made this one: its number among the spans of its trace, from 1, as it was when the row was computed. Calls of
-- one request have the same number. 0: not known; rows of versions before 0.2.0 have it.
ALTER TABLE edges ADD COLUMN IF NOT EXISTS source_call UInt32 DEFAULT 0 CODEC(T64, LZ4) AFTER trace_spans;
