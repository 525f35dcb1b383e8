"""Decisions over HTTP: a durable event log, recovery to the bit, keys, metrics and a dashboard.

From the bottom up: `events` are what the log holds, `log` keeps them (`sqlite_log`, `postgres_log`); a `bandit` is one
policy with its outstanding decisions, the `ledger` all of them; `snapshots` and `recovery` bring a ledger back; the
`writer` alone changes it, in the order plan, commit, apply, answer; `api` is the HTTP side, with `keys`, `schemas`,
`openapi`, `metrics` and the `dashboard`; `serve` starts it all. `offline` judges another policy by a log.
"""
