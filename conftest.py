"""No example of a property test is judged by how long a busy machine takes for it."""

from hypothesis import settings

settings.register_profile("spillway", settings(), deadline=None)
settings.load_profile("spillway")
