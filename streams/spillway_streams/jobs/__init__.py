"""The Faust wiring of each job: messages in, pure functions, rows out."""
