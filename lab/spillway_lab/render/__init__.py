"""From a scenario to the files of a run folder: Envoy, NATS, certificates, process-compose.

Pure apart from `files.py` and `keystore.py`, which write.
"""
