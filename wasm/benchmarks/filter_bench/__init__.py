"""What `make bench-filter` measures with."""
