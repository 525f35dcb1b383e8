"""What a log must hold, and what a service that was never stopped would have done: for `crashes.py` and `soak.py`."""

import itertools
import json
import subprocess
import sys
from collections import Counter

from servers import HERE

from sketchbandits import snapshot
from sketchbandits.service.bandits.changes import Change
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.planning import NO_FACTS, GroupPlan
from sketchbandits.service.bandits.requests import Decide
from sketchbandits.service.log.events import Kind, parsed


def fingerprint(ledger):
    """Everything that decides what a ledger does and shows next, bit for bit; but for the number of its next decision,
    since a snapshot may leave out numbers that were never used.
    """
    return ledger.keys_required, {
        name: (
            {leaf: array.tobytes() for leaf, array in snapshot.leaves(bandit.policy.state)},
            dict(bandit.policy.settings),
            list(bandit.waiting.items()),
            {by: list(own.items()) for by, own in bandit.keys.items()},
            list(bandit.ids),
            dict(bandit.index),
            (bandit.first_number, bandit.last_number, bandit.created, sorted(bandit.retracted)),
            None if bandit.places.arm_at is None else bandit.places.arm_at.tolist(),
            repr(bandit.totals.to_json()),
            bandit.totals.outstanding.tolist(),
        )
        for name, bandit in ledger.bandits.items()
    }


class Uncrashed:
    """A ledger in this process that follows the log and makes every decision again before it takes the logged one."""

    def __init__(self):
        self.ledger, self.last = Ledger(), 0
        self.decisions, self.differing = 0, []

    def follow(self, records):
        """Take more records of the log, group by group: a bandit plans what it is asked at one time together."""

        def mark(entry):
            seq, change = entry
            together = change.kind in (Kind.DECISION, Kind.REWARD)
            return (change.data["bandit"], change.data["t"]) if together else (seq, None)

        for _, group in itertools.groupby(((r.seq, Change.from_record(r)) for r in records), mark):
            entries = list(group)
            self._decide([entry for entry in entries if entry[1].kind == Kind.DECISION])
            self.ledger.apply(entries)
            self.last = entries[-1][0]

    def _decide(self, entries):
        if not entries:
            return
        requests = []
        for _, change in entries:
            bandit, available = self.ledger.bandits[change.data["bandit"]], change.data.get("available")
            ids = None if available is None else tuple(bandit.ids[arm] for arm in available)
            key, by = change.data.get("key"), change.data.get("by")
            requests.append(Decide(bandit.name, ids, key, len(change.data["arms"]), by))
        first = entries[0][1].data
        plan = planned(self.ledger, requests, first["t"], first["n"])
        for (seq, logged), mine in zip(entries, plan.changes, strict=True):
            self.decisions += len(logged.data["arms"])
            if any(logged.data[what] != mine.data[what] for what in ("n", "arms", "bounds", "p")):
                self.differing.append(f"record {seq}: {logged.data} was decided, a service never stopped: {mine.data}")

    def next_decisions(self, bandit, count, number):
        """What the service is going to decide next, the first decision having this number."""
        (change,) = planned(self.ledger, [Decide(bandit, None, None, count)], 0.0, number).changes
        own = self.ledger.bandits[bandit]
        data = change.data
        return [(own.ids[arm], bound, p) for arm, bound, p in zip(data["arms"], data["bounds"], data["p"], strict=True)]


def planned(ledger, requests, now, number):
    """What a bandit plans for these requests, its decisions beginning with this number."""
    group = GroupPlan(ledger, requests, NO_FACTS, now, first=number)
    for _ in group.steps():
        pass
    return group.plan


class Acknowledged:
    """A journal of clients against the log: what was acknowledged must be there, exactly so."""

    def __init__(self, path):
        self.path, self.at = path, 0
        self.ids: dict[str, list[str]] = {}  # per bandit, of its arms
        self.decided, self.recorded, self.keys = {}, {}, {}
        self.numbers, self.retracted, self.removed, self.deleted = set(), set(), set(), Counter()
        self.seen = Counter()
        self.answered = set()
        self.lost, self.wrong = [], []

    def read(self, record):
        """Take a record of the log."""
        data = parsed(record.body)
        if record.kind == Kind.BANDIT:
            self.ids[data["bandit"]] = list(data["ids"])
        elif record.kind == Kind.ARMS_ADDED:
            self.ids[data["bandit"]].extend(data["ids"])
        elif record.kind == Kind.ARMS_REMOVED:
            self.removed |= {(data["bandit"], self.ids[data["bandit"]][arm]) for arm in data["arms"]}
        elif record.kind == Kind.DECISION:
            self._read_decisions(record.seq, data)
        elif record.kind == Kind.RETRACTED:
            self.retracted.update(data["ids"])
        elif record.kind == Kind.BANDIT_DELETED:
            self.deleted[data["bandit"]] += 1
        elif record.kind in (Kind.REWARD, Kind.DEFAULT):
            self.recorded[data["id"]] = (record.seq, data["bandit"], data["reward"], record.kind)

    def _read_decisions(self, seq, data):
        own = []
        for i, arm in enumerate(data["arms"]):
            name = f"{data['n'] + i}-{data['token']}"
            own.append([name, self.ids[data["bandit"]][arm], data["bounds"][i], data["p"][i]])
            self.decided[name] = (seq, data["bandit"])
            if data["n"] + i in self.numbers:
                self.wrong.append(f"record {seq}: the number {data['n'] + i} is used a second time")
            self.numbers.add(data["n"] + i)
        self.keys[data["n"]] = (data.get("key"), own)

    def check(self):
        """Compare what clients have written since the last time."""
        with open(self.path, "rb") as file:
            file.seek(self.at)
            lines = file.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self.at += len(whole)
        for line in whole.splitlines():
            kind, *rest = json.loads(line)
            self.seen[kind] += 1
            getattr(self, f"_{kind}")(*rest)

    def _decided(self, body, answer):
        shown = [list(d.values()) for d in answer["decisions"]]
        first = int(shown[0][0].partition("-")[0])
        if self.keys.get(first) != (body.get("key"), shown):
            self.lost.append(f"acknowledged: {body} {answer}; logged: {self.keys.get(first)}")
        self.answered |= {decision[0] for decision in shown}

    def _outcome(self, bandit, decision, value, status):
        self.seen[status] += 1
        _, owner, recorded, kind = self.recorded.get(decision, (0, None, None, None))
        fits = {
            "accepted": recorded == value and kind == Kind.REWARD,
            "known": recorded == value,
            "conflict": recorded is not None and recorded != value,
            "retracted": decision in self.retracted,
        }
        if owner != bandit or not fits.get(status, False):
            self.lost.append(f"{decision} was {status} with {value}; logged: {recorded} ({kind}) of {owner}")
        if status in ("accepted", "known"):
            self.answered.add((decision, "outcome"))

    def _added(self, bandit, name):
        if name not in self.ids[bandit]:
            self.lost.append(f"arm {name} was added to {bandit} and is not in the log")

    def _removed(self, bandit, name):
        if (bandit, name) not in self.removed:
            self.lost.append(f"arm {name} was removed from {bandit} and that is not in the log")

    def _retracted(self, decision, status):
        if (decision in self.retracted) != (status in ("retracted", "known")):
            self.lost.append(f"{decision} was {status} when its reward was taken back, and the log says otherwise")

    def _deleted(self, bandit):
        if not self.deleted[bandit]:
            self.lost.append(f"bandit {bandit} was deleted and that is not in the log")

    def _repeated(self):
        pass

    def _wrong(self, text):
        self.wrong.append(text)

    def unanswered(self, after):
        """What was logged after a record and never acknowledged to a client."""
        decisions = [name for name, (seq, _) in self.decided.items() if seq > after and name not in self.answered]
        rewards = [
            name
            for name, (seq, _, _, kind) in self.recorded.items()
            if seq > after and kind == Kind.REWARD and (name, "outcome") not in self.answered
        ]
        return decisions + rewards


class Crowd:
    """`clients.py` in its own process."""

    def __init__(self, address, journal, *flags):
        command = [sys.executable, HERE / "clients.py", address, journal, *flags]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([*map(str, command)], text=True, **pipes)

    def send(self, word):
        """``go``, or ``pause``: then no request is under way on return."""
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        if word == "pause" and self.process.stdout.readline().strip() != "paused":
            raise RuntimeError("the clients' process has failed")

    def stop(self):
        """End it; returns how often each status was seen."""
        self.send("stop")
        return json.loads(self.process.stdout.readline())

    def close(self):
        """End it in any case."""
        self.process.kill()
        self.process.wait()
