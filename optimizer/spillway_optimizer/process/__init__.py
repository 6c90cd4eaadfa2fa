"""States and progress messages, which the processes and commands share.

This package does not know problems, rules or servers.
"""
