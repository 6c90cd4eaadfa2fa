"""Keys and certificates of a run, and the users whose passwords it makes.

Kubernetes does this in a deployment; nothing here is used there.
"""
