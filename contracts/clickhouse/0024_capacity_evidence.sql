-- What each evidence of a capacity says by itself, for the same pods as capacity_rps; 0: there is none.
-- evidence (which one was decisive): cpu, latency, refusals, queue or assumed. limit: what was completed while requests
-- were refused or a queue grew. disagreement: the highest evidence over capacity_rps where their errors do not
-- explain it, else 1; 0: not known.
ALTER TABLE capacities
    ADD COLUMN IF NOT EXISTS cpu_rps Float64 DEFAULT 0,
    ADD COLUMN IF NOT EXISTS cpu_se Float64 DEFAULT 0,
    ADD COLUMN IF NOT EXISTS latency_rps Float64 DEFAULT 0,
    ADD COLUMN IF NOT EXISTS latency_se Float64 DEFAULT 0,
    ADD COLUMN IF NOT EXISTS limit_rps Float64 DEFAULT 0,
    ADD COLUMN IF NOT EXISTS limit_se Float64 DEFAULT 0,
    ADD COLUMN IF NOT EXISTS disagreement Float64 DEFAULT 0;
