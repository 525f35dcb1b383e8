"""How many rounds a second other bandit libraries play, each in an environment of its own, beside the yardstick."""
