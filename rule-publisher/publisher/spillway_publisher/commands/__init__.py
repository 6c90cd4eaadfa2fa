"""The operator's commands: status, history, rollback, reset-fence, validate.

`commands.py` connects and prints; the logic in `operator.py` is pure and tested separately.
"""
