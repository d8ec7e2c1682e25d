"""Parts together, over real sockets."""
