"""From a partition's messages to rows: admission, native engine, offsets, and output of a flush.

What the rows mean afterwards is computed in `load`, `graph` and `classes`.
"""
