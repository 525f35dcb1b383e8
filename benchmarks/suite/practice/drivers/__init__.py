"""Scripts that a peer's own Python runs by path: they know the peer, NumPy and `rounds_protocol`, not this library."""
