"""What large bandits ask of a service, for `isolation.py`, in a process of its own.

    python disturb.py ADDRESS ACTION ...

Actions: ``create`` (bandits of 50,000 arms of several policies, deleted again), ``list`` (arms and clusters of such a
bandit, in a closed loop, and five dashboards on it, while it decides), ``count`` (1,000 decisions of it in a request,
four clients) and ``refuse`` (a body of 60 MB that is refused at its end). They go on until a line arrives on standard
input; what was begun is finished, and every policy created once. Then a line of JSON says how often each status was
seen, and the longest time that a request took.
"""

import collections
import http.client
import json
import random
import sys
import threading
import time

N_ARMS, DIM = 50_000, 20
BIG = "big"
COUNT_CLIENTS, DASHBOARDS, DASHBOARD_SECONDS = 4, 5, 2.0
LIST_PAUSE, TRICKLE_SECONDS = 0.1, 0.2
REFUSED_BYTES, REFUSED_DIM = 60_000_000, 80
CREATED = (  # policies with kernels of their own
    {"policy": "multiscale", "options": {"sketch_size": 5}},
    {"policy": "oful", "options": {"radius": "logdet"}},
    {"policy": "linucb"},
)
PATIENCE = 600.0


class Client(threading.Thread):
    """One connection that repeats an action until the end; ``least`` times at least."""

    def __init__(self, address, action, ended, least=0):
        super().__init__(daemon=True)
        host, _, port = address.removeprefix("http://").rpartition(":")
        self.address, self.action, self.ended, self.least = (host, int(port)), action, ended, least
        self.connection, self.statuses, self.longest = None, collections.Counter(), {}

    def run(self):
        done = 0
        while done < self.least or not self.ended.is_set():
            self.action(self)
            done += 1

    def ask(self, method, path, body=None):
        """The status; 0 where there was no answer."""
        name, started = f"{method} {path.partition('?')[0]}", time.perf_counter()
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
            self.connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = self.connection.getresponse()
            answer.read()
            status = answer.status
        except (OSError, http.client.HTTPException):
            self.connection, status = None, 0
        self.statuses[f"{name} {status}"] += 1
        self.longest[name] = max(self.longest.get(name, 0.0), time.perf_counter() - started)
        if status in (0, 503):
            self.ended.wait(0.1)
        return status


def bandit(name, rules, n_arms=N_ARMS, dim=DIM, end=""):
    """The body of a new bandit; ``end`` goes into the features of its last arm."""
    rng = random.Random(name)
    scale = 0.5 / dim**0.5
    row = [f"{rng.uniform(-scale, scale):.5f}" for _ in range(dim + n_arms)]
    arms = [f'{{"id":"{name}-{i}","features":[{",".join(row[i : i + dim])}]}}' for i in range(n_arms)]
    if end:
        arms[-1] = arms[-1].replace("[", f"[{end},", 1)
    head = json.dumps({"name": name, **rules})[:-1]
    return f'{head},"arms":[{",".join(arms)}]}}'.encode()


def creators():
    """One client, which makes a bandit of the next policy and deletes it."""
    bodies = [(rules["policy"], bandit(f"new-{rules['policy']}", rules)) for rules in CREATED]
    made = 0

    def create(client):
        nonlocal made
        policy, body = bodies[made % len(bodies)]
        made += 1
        client.ask("POST", "/v1/bandits", body)
        client.ask("DELETE", f"/v1/bandits?bandit=new-{policy}")

    return [(create, len(bodies))]


def listers():
    """Two that read pages and clusters, five dashboards, and one that makes the bandit change."""

    def lister(client):
        sort = random.choice(("estimate", "bound", "mean", "id"))
        client.ask("GET", f"/v1/arms?bandit={BIG}&limit=1000&sort={sort}&search=7")
        client.ask("GET", f"/v1/policy?bandit={BIG}&limit=1000")
        client.ended.wait(LIST_PAUSE)

    def dashboard(client):
        for path in (f"/v1/arms?bandit={BIG}&limit=50&sort=estimate", f"/v1/policy?bandit={BIG}"):
            client.ask("GET", path)
        for path in ("/v1/bandits", f"/v1/activity?bandit={BIG}"):
            client.ask("GET", path)
        client.ended.wait(DASHBOARD_SECONDS)

    def trickle(client):
        client.ask("POST", "/v1/decisions", json.dumps({"bandit": BIG}))
        client.ended.wait(TRICKLE_SECONDS)

    return [(lister, 0)] * 2 + [(dashboard, 0)] * DASHBOARDS + [(trickle, 0)]


def counters():
    """Four clients that want 1,000 decisions at a time."""
    body = json.dumps({"bandit": BIG, "count": 1_000})
    return [(lambda client: client.ask("POST", "/v1/decisions", body), 0)] * COUNT_CLIENTS


def refusers():
    """One client with a large body whose last arm has a word among its features."""
    n_arms = REFUSED_BYTES // (REFUSED_DIM * 8 + 40)
    body = bandit("refused", {"policy": "ucb1"}, n_arms, REFUSED_DIM, '"nonsense"')
    return [(lambda client: client.ask("POST", "/v1/bandits", body), 1)]


ACTIONS = {"create": creators, "list": listers, "count": counters, "refuse": refusers}


def main():
    address, *actions = sys.argv[1:]
    ended = threading.Event()
    clients = [Client(address, action, ended, least) for name in actions for action, least in ACTIONS[name]()]
    print("ready", flush=True)
    sys.stdin.readline()
    for client in clients:
        client.start()
    sys.stdin.readline()
    ended.set()
    for client in clients:
        client.join()
    statuses, longest = sum((client.statuses for client in clients), collections.Counter()), {}
    for client in clients:
        for name, seconds in client.longest.items():
            longest[name] = max(longest.get(name, 0.0), seconds)
    print(json.dumps({"statuses": statuses, "longest": longest}), flush=True)


if __name__ == "__main__":
    main()
