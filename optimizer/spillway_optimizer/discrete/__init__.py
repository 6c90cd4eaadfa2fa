"""Limits on the destinations of routes, on top of a solver's routing.

What a share may be and how many destinations a route may have belongs here. How a routing is found
does not (`solvers`), nor how it becomes integer weights (`rulesets`).
"""
