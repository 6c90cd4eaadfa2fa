"""The Faust wiring of each job: it reads messages, calls pure functions and writes rows."""
