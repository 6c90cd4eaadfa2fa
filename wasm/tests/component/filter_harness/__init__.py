"""Harness of the component tests: an application, a collector, a client, and Envoy."""
