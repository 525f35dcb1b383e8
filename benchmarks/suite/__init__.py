"""What the library costs, measured: ``python benchmarks/bench.py``.

    points of a workload → measured, by the rules of `measure` → journal → summary → table, figure, JSON

`workloads` has one file per question, `games` the arm sets, `yardstick` and `peers` what the library is compared with;
`run` carries out a plan.
"""
