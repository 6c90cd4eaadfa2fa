"""PAPA: performance-aware policy adjustment (SLATE 4.4, appendix F).

It starts from the optimizer's rules, finds destinations that do worse than predicted, moves a little of
one rule's weight to those that do better, and keeps the step only if what users feel improves.
"""
