"""What every Python program needs, whatever it does: settings, logs, health, metrics, retries.

This package imports nothing else of the project, and knows no message, table or subject.
"""
