"""What two or more Spillway boxes share: names, messages' meaning, and their validation.

    ContractError
    └── raised by topology.load, traffic_class.parse and ruleset.check

Imports nothing of any box.
"""


class ContractError(ValueError):
    """Input that breaks a contract; the message names the place, the value and what is allowed."""
