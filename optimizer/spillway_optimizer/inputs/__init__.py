"""What is known of the mesh: telemetry as typed values, its contradictions, and what is unknown.

Pure: clients fill these values, and `model` builds problems from them.
"""
