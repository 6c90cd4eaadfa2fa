"""Whether a change did what was predicted, and what a leader remembers of its proposals.

Pure. `service` asks, and acts on the answer.
"""
