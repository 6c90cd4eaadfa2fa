"""The optimizer's problem as plain values and arrays, its objective, solutions and rules.

Pure: the package knows no telemetry and no clients. Its objective is the only evaluator of
routings.
"""
