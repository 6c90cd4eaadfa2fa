"""Traffic classes that are just enough: learned, merged, bounded, flagged, pinned (SLATE 4.2).

Pure: samples of calls in, rules and findings out. `jobs/classify.py` feeds it, the job `exclusive` applies the
rules (streams/native/core/src/classes.rs), `cli.py` is the operator's hand.
"""
