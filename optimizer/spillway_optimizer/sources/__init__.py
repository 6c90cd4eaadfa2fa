"""Where `plan` and `explain` take a situation from: the live mesh, ClickHouse, a file, recorded traces.

Reads only. What-ifs change the values after they were read.
"""
