"""From a partition's messages to rows: admission, the native engine, offsets, outputs of one flush.

What rows mean afterwards is computed in `load`, `graph` and `classes`.
"""
