"""What every Python program needs: settings, command lines, logs, health, metrics, retries.

It imports no other package of the project. It does not know messages, tables or subjects.
"""
