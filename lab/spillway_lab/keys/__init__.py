"""Keys and certificates of a run, and the users whose passwords the run generates.

In a deployment Kubernetes does this, and nothing of this package is used there.
"""
