"""What every process of this box needs: logs and health.

Nothing here knows problems, rules or servers.
"""
