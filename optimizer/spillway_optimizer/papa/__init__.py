"""PAPA: performance-aware policy adjustment (SLATE 4.4, appendix F).

PAPA starts from the optimizer's rules and finds destinations that perform worse than predicted. It
moves a little of one rule's weight to destinations that perform better. It keeps the step only if
the latency that users experience improves.
"""
