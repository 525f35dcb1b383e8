"""What the library costs, measured: ``sketchbandits bench``.

    points of a workload → measured, by the rules of `measure` → journal → summary → table, figure, JSON

`workloads` has one file a question; `games` the arm sets they are asked on; `yardstick` and `peers` what the library is
compared with; `run` carries a plan out.
"""
