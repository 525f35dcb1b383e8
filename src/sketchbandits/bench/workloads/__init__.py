"""One file a question; see `sketchbandits.bench.workload` for what each offers."""

from sketchbandits.bench.workload import Workload
from sketchbandits.bench.workloads.calls import CALLS
from sketchbandits.bench.workloads.latency import LATENCY
from sketchbandits.bench.workloads.peers import PEERS as PEERS  # only where other libraries are asked for
from sketchbandits.bench.workloads.policies import POLICIES
from sketchbandits.bench.workloads.rounds import ROUNDS
from sketchbandits.bench.workloads.warmup import WARMUP

WORKLOADS: dict[str, Workload] = {each.name: each for each in (ROUNDS, LATENCY, WARMUP, POLICIES, CALLS)}
