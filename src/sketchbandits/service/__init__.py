"""Decisions over HTTP: a durable event log, exact recovery, keys, metrics and a dashboard.

A request is read, planned, committed to the log, applied and answered, in this order. From the bottom up:

- ``folder``, ``keys`` and ``clock``: the files of a service, who may call it, and the time that records get.
- ``children``, ``exercise`` and ``compiling``: work in other processes, above all the compilation of kernels.
- ``log``: numbered, chained records in SQLite or PostgreSQL; the only thing that recovery needs.
- ``bandits``: policies with their outstanding decisions; planning, applying, snapshots, recovery and the one writer.
- ``service``: starts and stops all of that.
- ``http``: endpoints, their schemas, the OpenAPI document, metrics and the server; it also serves the ``dashboard``.
"""
