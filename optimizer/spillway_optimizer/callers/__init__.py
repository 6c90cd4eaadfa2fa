"""What callers see of the destinations of their calls, smoothed from reading to reading. Pure."""
