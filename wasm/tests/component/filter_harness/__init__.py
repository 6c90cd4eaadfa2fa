"""What the component tests stand on: an application, a collector, a client, and Envoy."""
