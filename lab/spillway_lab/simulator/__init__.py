"""Simulates a scenario: the lab's application and load, and the policies of the real optimizer.

The queues are simulated in Rust (lab/native). Rules come from `python -m spillway_optimizer plan`,
as an operator would ask for them.
"""
