"""The optimizer's problem as plain values and arrays, its objective, and what solutions and rules are.

Pure: no telemetry, no clients. The objective here is the one evaluator that everything uses.
"""
