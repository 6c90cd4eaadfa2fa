"""Linear and mixed-integer programmes of OR-Tools: the policy `exact`, which is also the reference.

What needs OR-Tools to minimise or to prove belongs here. The convex problem, its stations and the
descent are in `solvers`.
"""
