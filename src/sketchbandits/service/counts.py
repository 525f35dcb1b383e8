"""What happened to connections since the service began."""

from dataclasses import dataclass


@dataclass
class ConnectionCounts:
    """How many are open, and how many were closed before their client did, by the reason."""

    open: int = 0
    closed_idle: int = 0  # no request for a minute
    closed_slow: int = 0  # a request did not arrive in time
    closed_unread: int = 0  # the client did not read its answer
    displaced: int = 0  # at a limit, for a new one
    refused: int = 0  # at a limit where all others were being answered
    oversized: int = 0  # more headers, trailers or waiting requests than allowed
