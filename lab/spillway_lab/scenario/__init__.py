"""Scenario and application files as checked values.

Pure apart from reading the file; every error names the key.
"""
