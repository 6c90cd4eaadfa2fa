"""The operator's commands: status, history, rollback, reset-fence, validate.

Arguments and printing; the thinking is pure and tested apart.
"""
