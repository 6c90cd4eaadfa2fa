"""Builds one problem per application: demand, capacities, failures, network times, curves.

Pure. What cannot be modelled is returned as notes and refusals, never guessed.
"""
