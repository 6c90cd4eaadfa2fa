"""Commands that run once: `acls`, `classes`, `model`.

They only parse arguments and print. The work is done in the other packages.
"""
