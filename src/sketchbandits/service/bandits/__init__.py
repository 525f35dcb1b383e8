"""Bandits behind the service: plan a change, commit it to the log, apply it, recover from the log."""
