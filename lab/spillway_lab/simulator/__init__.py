"""Simulates a scenario: the lab's application and load, and the policies of the real optimizer.

The queues are simulated in Rust (lab/native). Baselines' rules come from `python -m
spillway_optimizer plan`, as an operator would ask for them. Spillway and PAPA run in closed loop
(`python -m spillway_optimizer steps`): every second they get the boards of the simulated requests,
and their rules are in force from then on.
"""
