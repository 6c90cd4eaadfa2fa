"""Sources of a situation for `plan` and `explain`: live mesh, ClickHouse, a file, recorded traces.

Sources only read. What-ifs change the values after they are read.
"""
