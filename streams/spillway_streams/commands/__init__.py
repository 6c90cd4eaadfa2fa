"""Commands that run once: `acls`, `classes`, `model`.

Arguments and printing only; what they do is in the other rooms.
"""
