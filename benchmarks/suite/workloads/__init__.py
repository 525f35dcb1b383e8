"""One file per question; see `suite.workload` for what each offers."""

from suite.workload import Workload
from suite.workloads.calls import CALLS
from suite.workloads.latency import LATENCY
from suite.workloads.peers import PEERS as PEERS  # only where other libraries are asked for
from suite.workloads.policies import POLICIES
from suite.workloads.rounds import ROUNDS
from suite.workloads.warmup import WARMUP

WORKLOADS: dict[str, Workload] = {each.name: each for each in (ROUNDS, LATENCY, WARMUP, POLICIES, CALLS)}
