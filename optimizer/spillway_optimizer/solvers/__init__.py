"""Solvers: policies that minimise the objective."""
