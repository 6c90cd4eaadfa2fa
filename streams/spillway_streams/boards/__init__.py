"""Live boards: load and demand of the last seconds, with what is unknown stated as unknown.

Pure. `jobs/live.py` writes the boards to Redis.
"""
