"""Traffic classes, no more than needed: learned, merged, bounded, flagged and pinned (SLATE 4.2).

Pure: samples of calls are the input, rules and findings the output. `jobs/classify.py` supplies the
samples. The job `exclusive` applies the rules (streams/native/core/src/classes/rules.rs). Operators
use `commands/classes.py`.
"""
