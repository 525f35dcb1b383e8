"""Rounds per second of other bandit libraries, each in its own environment, compared with the yardstick."""
