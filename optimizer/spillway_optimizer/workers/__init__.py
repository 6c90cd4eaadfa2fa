"""Solves of applications, and the worker processes that make several of them at the same time.

`parallel.py` is the leader's side, and `worker_main.py` is a worker. Which applications are solved,
and what becomes of their solutions, is decided elsewhere (`service`).
"""
