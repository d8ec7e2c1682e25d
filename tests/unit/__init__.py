"""Each part by itself, without I/O."""
