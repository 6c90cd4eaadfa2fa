"""The optimizer and PAPA with a clock that is stepped, for simulations.

`service/` and `papa/` decide. What is here stands in for their servers and waits for the next
document.
"""
