"""What every Python program needs, whatever it does: settings, logs, health, metrics, retries.

It imports no other package of the project. It does not know messages, tables or subjects.
"""
