"""Random clients in a process of their own, for `crashes.py` and `soak.py`; whatever is acknowledged goes to a journal.

    python clients.py ADDRESS JOURNAL [--threads 6] [--seed 0] [--pause 0.005] [--wild]

Lines on standard input: ``go``, ``pause`` (answered by ``paused`` once no request is under way) and ``stop`` (answered
by a line of JSON: how often each status was seen). Requests without an answer are sent again later, with the same key.
``--wild`` adds bad requests and clients that leave in the middle.
"""

import argparse
import collections
import http.client
import json
import os
import random
import socket
import sys
import threading
import time

BANDITS = {  # what both scripts serve
    "default": {},
    "coins": {
        "policy": "ucb1", "exploration": 0.2, "deadline": 1.5, "default_reward": -0.1, "seed": 7, "reward_range": None
    },
    "linear": {"policy": "oful", "pending": 50, "options": {"radius": "logdet"}, "reward_range": [-20.0, 20.0]},
}  # fmt: skip
RULES = ("--reward-range", "none")  # flags for the bandit "default"
FIRST_ARMS, DIMENSION = 24, 6  # arms "0" ... "23" stay, others come and go
PATIENCE = 60.0
GONE = (OSError, http.client.HTTPException)
BAD = [  # method, path, body, header, statuses that are right
    ("POST", "/v1/decisions", "{", {}, {400}),
    ("POST", "/v1/decisions", '{"count":0}', {}, {422}),
    ("POST", "/v1/decisions", '{"bandit":"nobody"}', {}, {404}),
    ("POST", "/v1/decisions", '{"available":["nobody"]}', {}, {404}),
    ("POST", "/v1/decisions", '{"available":["nobody"],"key":"bad"}', {}, {404}),
    ("POST", "/v1/decisions", '{"surprise":1}', {}, {422}),
    ("POST", "/v1/decisions", "{}", {"Content-Type": "text/plain"}, {415}),
    ("POST", "/v1/decisions", '"' + "x" * 1_100_000 + '"', {}, {413}),
    ("POST", "/v1/rewards", '{"decision_id":"1-00000000","reward":NaN}', {}, {400, 422}),
    ("POST", "/v1/rewards", '{"decision_id":"999999999-0123abcd","reward":1.0}', {}, {404}),
    ("POST", "/v1/rewards", '{"decision_id":"nonsense","reward":1.0}', {}, {404}),
    ("POST", "/v1/rewards", '{"bandit":"linear","decision_id":"nonsense","reward":20.5}', {}, {422}),
    ("POST", "/v1/retractions", '{"decision_ids":["nonsense"]}', {}, {200}),
    ("DELETE", "/v1/bandits?bandit=nobody", None, {}, {404}),
    ("POST", "/v1/arms", '{"arms":[{"id":"short","features":[1.0]}]}', {}, {422}),
    ("POST", "/v1/arms", '{"arms":[{"id":"0","features":[0,0,0,0,0,1.0]}]}', {}, {409}),
    ("POST", "/v1/bandits", '{"name":"default","arms":[{"id":"a","features":[1.0]}]}', {}, {409}),
    ("DELETE", "/v1/arms?id=nobody", None, {}, {404}),
    ("PUT", "/v1/arms", "{}", {}, {405}),
    ("GET", "/v1/nothing", None, {}, {404}),
    ("GET", "/v1/arms?limit=0", None, {}, {422}),
    ("GET", "/v1/arms?sort=pulls&limit=5", None, {}, {200}),
    ("GET", "/v1/policy?bandit=default", None, {}, {200}),
    ("GET", "/v1/activity?bandit=coins", None, {}, {200}),
    ("GET", "/metrics", None, {}, {200}),
]


class Journal:
    """Lines that are written immediately, by any thread."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *line):
        os.write(self.file, json.dumps(line).encode() + b"\n")


class Gate:
    """Lets threads pass, and knows when all of them wait."""

    def __init__(self, threads):
        self.condition, self.threads, self.waiting = threading.Condition(), threads, 0
        self.open = self.stopped = False

    def passes(self):
        """Wait for the gate; whether to go on."""
        with self.condition:
            self.waiting += 1
            self.condition.notify_all()
            self.condition.wait_for(lambda: self.open or self.stopped)
            self.waiting -= 1
        return not self.stopped

    def turn(self, *, open_=False, stopped=False):
        """Open or close it; closed, all wait on return."""
        with self.condition:
            self.open, self.stopped = open_, stopped
            self.condition.notify_all()
            if not (open_ or stopped):
                self.condition.wait_for(lambda: self.waiting == self.threads)


class Client(threading.Thread):
    """One client with one connection and its own mind."""

    def __init__(self, number, options, gate, journal):
        super().__init__(daemon=True)
        host, _, port = options.address.removeprefix("http://").rpartition(":")
        self.number, self.host, self.port, self.gate, self.journal = number, host, int(port), gate, journal
        self.rng = random.Random(f"{options.seed} {number}")
        self.mean_pause, self.statuses = options.pause, collections.Counter()
        self.connection, self.names = None, 0
        self.waiting, self.recorded = [], collections.deque(maxlen=200)  # decisions without and with an outcome
        self.again, self.keyed, self.arms = [], collections.deque(maxlen=50), []
        self.actions = [(self.decide, 45), (self.reward, 36), (self.rewards, 6), (self.reward_again, 4)]
        self.actions += [(self.contradict, 3), (self.key_again, 4), (self.change_arms, 0.2)]
        self.actions += [(self.retract, 0.1), (self.free_arms, 0.03), (self.come_and_go, 0.05)]
        # The checker follows retractions and freed arms of these for as long as a soak lasts.
        self.retracts_of, self.frees_of = (("coins",), ("linear",)) if options.wild else (BANDITS, BANDITS)
        if options.wild:
            self.actions += [(self.misbehave, 6), (self.leave, 3)]

    def run(self):
        calls, weights = zip(*self.actions, strict=True)
        while self.gate.passes():
            if self.again and self.rng.random() < 0.5:
                kind, *rest = self.again.pop(0)
                kind(*rest)
            else:
                self.rng.choices(calls, weights)[0]()
            time.sleep(self.rng.uniform(0.0, 2.0 * self.mean_pause))

    def ask(self, method, path, body=None, headers=None):
        """Status and answer; None where no answer came."""
        self.connection = self.connection or http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            self.connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            answer = self.connection.getresponse()
            status, text = answer.status, answer.read()
        except GONE as error:
            self.drop()
            self.statuses["no connection" if isinstance(error, ConnectionRefusedError) else "no answer"] += 1
            time.sleep(0.02)
            return None
        self.statuses[status] += 1
        if status >= 500 and status != 503:
            self.journal.write("wrong", f"{method} {path} {str(body)[:200]}: {status} {text[:200]!r}")
        return None if status == 503 else (status, json.loads(text) if path != "/metrics" else {})

    def drop(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def expect(self, answer, what, *statuses):
        """Whether the answer has one of the statuses; another one is noted."""
        if answer[0] in statuses:
            return True
        self.journal.write("wrong", f"{what}: {answer}")
        return False

    # What a client does.

    def decide(self, body=None):
        if body is None:
            body = {"bandit": self.rng.choice(list(BANDITS)), "count": self.rng.choice((1, 1, 1, 2, 5))}
            if self.rng.random() < 0.25:
                body["available"] = [str(i) for i in self.rng.sample(range(FIRST_ARMS), 8)]
            if self.rng.random() < 0.5:
                body["key"] = f"{self.number}-{self.rng.getrandbits(64):x}"
        answer = self.ask("POST", "/v1/decisions", json.dumps(body))
        if answer is None:
            if "key" in body:
                self.again.append((self.decide, body))
        elif self.expect(answer, f"decide {body}", 200):
            self.journal.write("decided", body, answer[1])
            if "key" in body:
                self.keyed.append((body, answer[1]["decisions"]))
            self.waiting += [(body["bandit"], decision["decision_id"]) for decision in answer[1]["decisions"]]

    def key_again(self):
        if not self.keyed:
            return
        body, first = self.rng.choice(self.keyed)
        answer = self.ask("POST", "/v1/decisions", json.dumps(body))
        if answer is not None and self.expect(answer, f"the same key {body}", 200):
            same = answer[1]["repeated"] and answer[1]["decisions"] == first
            self.journal.write(*(("repeated",) if same else ("wrong", f"{body}: {first}, then {answer[1]}")))

    def reward(self, bandit=None, decision=None, value=None):
        if bandit is None:
            if not self.waiting or self.rng.random() < 0.05:
                return
            bandit, decision = self.waiting.pop(self.rng.randrange(len(self.waiting)))
            if self.rng.random() < 0.1:
                return  # never
            value = round(self.rng.gauss(0.3, 1.0), 3)
        answer = self.ask(
            "POST", "/v1/rewards", json.dumps({"bandit": bandit, "decision_id": decision, "reward": value})
        )
        if answer is None:
            self.again.append((self.reward, bandit, decision, value))
        elif self.expect(answer, f"reward {decision}", 200, 409):
            self.note(bandit, answer[1]["results"][0], value)

    def note(self, bandit, result, value):
        self.journal.write("outcome", bandit, result["decision_id"], value, result["status"])
        self.recorded.append((bandit, result["decision_id"], value))

    def rewards(self):
        if not self.waiting:
            return
        bandit = self.rng.choice(self.waiting)[0]
        own = [entry for entry in self.waiting if entry[0] == bandit][:10]
        self.waiting = [entry for entry in self.waiting if entry not in own]
        self.send_rewards(bandit, [(decision, round(self.rng.gauss(0.3, 1.0), 3)) for _, decision in own])

    def send_rewards(self, bandit, items):
        rewards = [{"decision_id": decision, "reward": value} for decision, value in items]
        answer = self.ask("POST", "/v1/rewards", json.dumps({"bandit": bandit, "rewards": rewards}))
        if answer is None:
            self.again.append((self.send_rewards, bandit, items))
        elif self.expect(answer, "rewards", 200):
            for result, (_, value) in zip(answer[1]["results"], items, strict=True):
                self.note(bandit, result, value)

    def reward_again(self):
        if self.recorded:
            self.reward(*self.rng.choice(self.recorded))

    def contradict(self):
        if self.recorded:
            bandit, decision, value = self.rng.choice(self.recorded)
            self.reward(bandit, decision, value + 1.0)

    def change_arms(self):
        if self.arms and self.rng.random() < 0.5:
            bandit, name = self.arms.pop(0)
            answer = self.ask("DELETE", f"/v1/arms?bandit={bandit}&id={name}")
            if answer is not None and self.expect(answer, f"remove {name}", 200):
                self.journal.write("removed", bandit, name)
            return
        self.names += 1
        bandit, name = self.rng.choice(list(BANDITS)), f"{self.number}.{self.names}"
        arm = {"id": name, "features": [self.rng.uniform(-0.3, 0.3) for _ in range(DIMENSION)]}
        answer = self.ask("POST", "/v1/arms", json.dumps({"bandit": bandit, "arms": [arm]}))
        if answer is not None and self.expect(answer, f"add {name}", 201):
            self.journal.write("added", bandit, name)
            self.arms.append((bandit, name))

    def retract(self):
        chosen = [entry for entry in self.recorded if entry[0] in self.retracts_of]
        if not chosen:
            return
        bandit, decision, _ = self.rng.choice(chosen)
        answer = self.ask("POST", "/v1/retractions", json.dumps({"bandit": bandit, "decision_ids": [decision]}))
        if answer is not None and self.expect(answer, f"retract {decision}", 200, 422) and answer[0] == 200:
            self.journal.write("retracted", decision, answer[1]["results"][0]["status"])

    def free_arms(self):
        answer = self.ask("DELETE", f"/v1/arms/removed?bandit={self.rng.choice(list(self.frees_of))}")
        if answer is not None:
            self.expect(answer, "free arms", 200)

    def come_and_go(self):
        """A bandit of its own: made, asked and deleted."""
        self.names += 1
        name, arms = f"own-{self.number}-{self.names}", [{"id": str(i), "features": [1.0 * i, 1.0]} for i in range(3)]
        made = self.ask("POST", "/v1/bandits", json.dumps({"name": name, "policy": "ucb1", "arms": arms}))
        if made is None or not self.expect(made, f"make {name}", 201):
            return
        body = {"bandit": name, "count": 3}
        answer = self.ask("POST", "/v1/decisions", json.dumps(body))
        if answer is not None and self.expect(answer, f"decide {body}", 200):
            self.journal.write("decided", body, answer[1])
        gone = self.ask("DELETE", f"/v1/bandits?bandit={name}")
        if gone is not None and self.expect(gone, f"delete {name}", 200):
            self.journal.write("deleted", name)

    # What a client should not do.

    def misbehave(self):
        method, path, body, headers, right = self.rng.choice(BAD)
        answer = self.ask(method, path, body, headers)
        if answer is not None:
            self.expect(answer, f"{method} {path} {str(body)[:80]}", *right)

    def leave(self):
        """Send a request, or half of one, and go."""
        body = json.dumps({"bandit": self.rng.choice(list(BANDITS))}).encode()
        head = b"POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        message = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        try:
            with socket.create_connection((self.host, self.port), timeout=PATIENCE) as short:
                short.sendall(message[: self.rng.randint(0, len(message))])
                time.sleep(self.rng.choice((0.0, 0.0, 0.01)))
            self.statuses["left"] += 1
        except OSError:
            self.statuses["no connection"] += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("journal")
    parser.add_argument("--threads", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.005)
    parser.add_argument("--wild", action="store_true")
    options = parser.parse_args()
    gate, journal = Gate(options.threads), Journal(options.journal)
    clients = [Client(number, options, gate, journal) for number in range(options.threads)]
    for client in clients:
        client.start()
    for line in sys.stdin:
        word = line.strip()
        gate.turn(open_=word == "go", stopped=word == "stop")
        if word == "stop":
            break
        if word == "pause":
            print("paused", flush=True)
    for client in clients:
        client.join(PATIENCE)
    total = sum((client.statuses for client in clients), collections.Counter())
    print(json.dumps({str(status): count for status, count in total.items()}), flush=True)


if __name__ == "__main__":
    main()
