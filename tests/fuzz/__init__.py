"""Much bad input, from connections to answers."""
