"""What the make targets call."""
