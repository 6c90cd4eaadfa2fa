"""Scenario and application files, read into checked values.

Pure apart from reading the files. Every error names the key.
"""
