"""Turns a scenario into the files of a run folder: Envoy, NATS, WAN and process-compose.

The rendering is pure. `files.py` writes the result, `templates.py` reads the templates, and
`ports.py` looks for free ports.
"""
