-- When the newest call began, Unix seconds; 0 without calls.
SELECT toUnixTimestamp64Micro(max(started_at)) / 1000000 AS newest FROM calls
