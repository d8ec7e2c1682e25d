"""What waiting costs, measured side by side with what else a user would pick. For `make bench` only."""
