"""Live boards: load and demand of the last seconds. What is unknown is stated as unknown.

Pure. `jobs/live.py` writes the boards to Redis.
"""
