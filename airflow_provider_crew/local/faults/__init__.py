"""What goes wrong on demand: the calls that ask for it, the kinds, and what they do to an exchange."""
