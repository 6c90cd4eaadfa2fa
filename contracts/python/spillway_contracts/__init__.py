"""What two or more Spillway boxes share: names, the meaning of messages, and their validation.

    ContractError
    └── raised by topology.load, traffic_class.parse, guardrails.load and the from_json of
        hot_state's entries

This package imports nothing from any box.
"""


class ContractError(ValueError):
    """Input breaks a contract. The message names the place, the value and what is allowed."""
