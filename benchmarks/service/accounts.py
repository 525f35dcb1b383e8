"""One bandit as `checker.py` sees it: its arms, outstanding decisions and sums, and the slow twin of its policy."""

import hashlib
import itertools
import math
import re
from typing import NamedTuple

import numpy as np
from twins import taught, twin_of

KEYS_KEPT = 100_000  # of each API key: a key may be used again after so many others
TOKEN = re.compile("[0-9a-f]{32}|[0-9a-f]{8}")  # version 0.1.0 had short ones
MOST_TAUGHT = 5_000  # rewards that a twin of multi-scale learns anew after a retraction; others learn all
TOLERANCE = 1e-8  # of bounds, relative
SUMS = 1e-9  # of sums after a retraction, relative
ROUNDING = 1e-6  # of times in seconds since 1970
NEARLY = 1e-7  # of the rule for pending pulls: rounding may decide at its limit


class Inconsistent(Exception):
    """The log contradicts itself."""


class Outcome(NamedTuple):
    """What the log says of a decision's reward."""

    id: str
    arm: int
    reward: float


def require(condition, message):
    """Say what does not fit."""
    if not condition:
        raise Inconsistent(message)


class Account:
    """The account of one bandit; each method raises `Inconsistent` where it does not fit."""

    def __init__(self, data, features, every=1):
        self.config, self.every = data["config"], every
        self.ids, self.active, self.index = [], np.zeros(0, bool), {}
        self.features, self.freed, self.remarks = np.zeros((0, features.shape[1])), set(), []
        self.counts, self.sums = np.zeros(0, np.int64), np.zeros(0)
        self.dimension = features.shape[1]
        self._name(data["ids"], features)
        self.twin = twin_of(self.config, features)
        self.waiting: dict[int, tuple[int, str, float]] = {}
        self.recorded: dict[int, Outcome] = {}
        self.retracted: set[int] = set()
        self.keys: dict[str, dict[str, int]] = {}  # by API key, "" for none: key -> record
        self.range = self.config.get("reward_range")  # of version 0.1.0: none
        self.decisions = self.rewards = self.defaults = self.last_number = 0
        self.reward_sum = 0.0
        self.bounds_compared = self.choices_compared = 0
        self.deviation = self.latest_default = 0.0
        self._bounds = None

    # Arms.

    def _name(self, ids, features):
        require(len(ids) == len(features) == len(set(ids)), "every arm needs one id of its own")
        require(features.shape[1] == self.dimension, f"features must be {self.dimension} a row")
        taken = [name for name in ids if name in self.index and self.active[self.index[name]]]
        require(not taken, f"arms {taken[:3]} are there already")
        self.index |= {name: len(self.ids) + i for i, name in enumerate(ids)}
        self.ids += ids
        more = len(ids)
        self.active = np.append(self.active, np.ones(more, bool))
        self.counts, self.sums = np.append(self.counts, [0] * more), np.append(self.sums, [0.0] * more)
        self.features = np.vstack([self.features, features])

    def add(self, ids, features):
        """Arms came."""
        self._name(ids, features)
        self._change("add", features)

    def remove(self, arms):
        """Arms went."""
        require(all(0 <= arm < len(self.ids) for arm in arms), "only known arms can be removed")
        self.active[arms] = False
        require(self.active.any(), "one arm at least must be left")
        self._change("remove", arms)

    def free(self, arms):
        """The memory of removed arms was given back: of all that have no reward to come."""
        waiting = {arm for arm, *_ in self.waiting.values()}
        due = [arm for arm in np.flatnonzero(~self.active).tolist() if arm not in waiting and arm not in self.freed]
        require(arms == due, f"the arms to free are {due[:9]}, not {arms[:9]}")
        self.freed |= set(arms)
        if self.twin is not None and not self.twin.frees:
            self._give_up("arms were freed, which its slow twin cannot follow")

    def _give_up(self, why):
        self.twin = None
        self.remarks.append(f"not compared from then on: {why}")

    def _change(self, what, value):
        self._bounds = None
        if self.twin is not None and not self.twin.grows:
            self._give_up("arms were added or removed, which its slow twin cannot follow")
        if self.twin is not None:
            getattr(self.twin, what)(value)

    # Decisions.

    def pending(self):
        """The arms of the latest outstanding decisions, oldest first."""
        latest = itertools.islice(reversed(self.waiting.values()), self.config["pending"])
        return [arm for arm, *_ in latest][::-1]

    def decide(self, data, seq):
        """Decisions were made."""
        arms, n, token = data["arms"], data["n"], data["token"]
        require(len(arms) == len(data["bounds"]) == len(data["p"]) > 0, "every decision has an arm, a bound and p")
        require(TOKEN.fullmatch(token), f"its token must be 32 hexadecimal digits, or 8, not {token!r}")
        require(n > self.last_number, f"its number must be above {self.last_number}, not {n}")
        self.last_number = n + len(arms) - 1
        require(math.isfinite(data["t"]), "its time must be finite")
        allowed = self.allowed(data)
        for i, (arm, bound, p) in enumerate(zip(arms, data["bounds"], data["p"], strict=True)):
            require(0 <= arm < len(self.ids) and self.active[arm], f"arm {arm} is not there to be played")
            require(allowed[arm], f"arm {arm} was not available")
            self._probability(n + i, arm, p, np.flatnonzero(allowed))
            self._bound(arm, bound)
            self.waiting[n + i] = (arm, token, data["t"])
        self.decisions += len(arms)
        self._key(data.get("key"), data.get("by", ""), seq)

    def allowed(self, data):
        """Which arms could be chosen."""
        if "available" not in data:
            return self.active
        named = data["available"]
        require(named and all(0 <= arm < len(self.ids) for arm in named), "available arms must be known")
        mask = np.zeros(len(self.ids), bool)
        mask[named] = True
        return mask & self.active

    def _key(self, key, by, seq):
        """Every API key has its own; those of nobody are everybody's."""
        if key is None:
            return
        require(isinstance(key, str) and 1 <= len(key) <= 200, "a key has 1 to 200 letters")
        own = self.keys.setdefault(by, {})
        require(key not in own and key not in self.keys.get("", ()), f"key {key!r} was answered before")
        own[key] = seq
        if len(own) > KEYS_KEPT:
            del own[next(iter(own))]

    def _probability(self, number, arm, p, among):
        """Of the arm drawn, and that the coin of this decision says so."""
        share, n = self.config["exploration"], among.size
        other, own = share / n, share / n + (1.0 - share)
        require(abs((n - 1) * other + own - 1.0) < 1e-12, "probabilities of all arms must be 1 in all")
        require(p in (own, other) if share else p == 1.0, f"p must be {own} or {other}, not {p}")
        if share:
            coin, place = _coins(self.config["seed"], number)
            drawn = among[int(place * n)]
            require(arm == drawn if coin < share else p == own, f"decision {number} is not what its coin says")

    def _bound(self, arm, bound):
        if self.twin is None:
            return
        if self._bounds is None:
            self._bounds = self.twin.bounds()
        expected = float(self._bounds[arm])
        self.bounds_compared += 1
        if bound is None or math.isinf(expected):
            require(bound is None and math.isinf(expected), f"the bound of arm {arm} must be {expected}, not {bound}")
            return
        off = abs(bound - expected) / max(1.0, abs(expected))
        require(off <= TOLERANCE, f"the bound of arm {arm} must be {expected!r}, not {bound!r}")
        self.deviation = max(self.deviation, off)

    def check_choices(self, entries, before):
        """Compare the choices of a group with the twin's, which knows the ``before`` outstanding."""
        if self.twin is None:
            return
        with np.errstate(all="ignore"):
            for entry, i, pending in self._in_order(entries, before):
                number = entry.data["n"] + i
                if number % self.every == 0 or self.twin.cheap:
                    self._choice(entry, i, pending if self.config["pending"] else [])

    def _in_order(self, entries, before):
        """Every choice with what was pending: decisions among all arms are made when the first of a group is asked."""
        exploring = self.config["exploration"] > 0.0
        plain = [arm for e in entries if "available" not in e.data for arm in e.data["arms"]]
        pending, at = list(before), None
        for entry in entries:
            together = "available" not in entry.data and not exploring
            if together and at is None:
                at = len(pending)
                pending += plain
            for i, arm in enumerate(entry.data["arms"]):
                if together:
                    yield entry, i, pending[:at]
                    at += 1
                else:
                    yield entry, i, pending
                    pending = [*pending, arm]

    def _choice(self, entry, i, pending):
        data, share = entry.data, self.config["exploration"]
        allowed, arm = self.allowed(data), data["arms"][i]
        own = self.twin.chooses(pending, allowed)
        if own is None:
            return
        self.choices_compared += 1
        explored = share and _coins(self.config["seed"], data["n"] + i)[0] < share
        if own != arm and not explored and not self._nearly(pending, allowed, arm):
            raise Inconsistent(f"record {entry.seq}: the twin chooses arm {own}, not {arm}")
        if explored:
            n = int(allowed.sum())
            expected = share / n + (1.0 - share if own == arm else 0.0)
            require(data["p"][i] == expected, f"record {entry.seq}: p must be {expected}, not {data['p'][i]}")

    def _nearly(self, pending, allowed, arm):
        """Whether rounding decides: at the limit of what may be discounted."""
        return any(arm == self.twin.chooses(pending, allowed, C) for C in (1.0 - NEARLY, 1.0 + NEARLY))

    # Outcomes.

    def outcome(self, number, data, *, default):
        """A reward came, or the deadline passed."""
        require(number not in self.recorded, f"decision {number} has an outcome already")
        require(number in self.waiting, f"decision {number} is none of this bandit's")
        arm, token, time = self.waiting.pop(number)
        require(data["id"] == f"{number}-{token}", f"decision {number} is {number}-{token}, not {data['id']}")
        require(data["arm"] == arm, f"decision {number} was for arm {arm}, not {data['arm']}")
        require(math.isfinite(data["reward"]), "a reward must be finite")
        if default:
            self._default(data, time)
        elif self.range is not None:
            require(self.range[0] <= data["reward"] <= self.range[1], f"its reward must be within {self.range}")
        self.recorded[number] = Outcome(data["id"], arm, data["reward"])
        self.rewards += 1
        self.reward_sum += data["reward"]
        self.counts[arm] += 1
        self.sums[arm] += data["reward"]

    def _default(self, data, time):
        deadline, value = self.config["deadline"], self.config["default_reward"]
        require(deadline is not None, "a default is recorded, and there is no deadline")
        late = data["t"] - (time + deadline)
        require(late >= -ROUNDING, f"a default is recorded {-late:.6f} s before its deadline")
        require(data["reward"] == value, f"a default must be {value}, not {data['reward']}")
        self.defaults += 1
        self.latest_default = max(self.latest_default, late)

    def retract(self, data):
        """Rewards were taken back: the twin learns anew what is left, of each arm the mean so many times."""
        given = list(zip(data["numbers"], data["ids"], data["arms"], data["rewards"], strict=True))
        require(given and len(set(data["numbers"])) == len(given), "a reward is taken back once")
        require(not self.freed, "no reward can be taken back once arms were freed")
        for number, *rest in given:
            require(number in self.recorded, f"decision {number} has no reward to take back")
            require(number not in self.retracted, f"the reward of decision {number} was taken back before")
            require(self.recorded[number] == tuple(rest), f"decision {number} has another reward: {rest}")
            self.retracted.add(number)
        self.rewards -= len(given)
        np.subtract.at(self.counts, data["arms"], 1)
        left = {arm: [] for arm in data["arms"]}
        for number, (_, arm, reward) in self.recorded.items():
            if arm in left and number not in self.retracted:
                left[arm].append(reward)
        for arm, rewards in left.items():
            self.sums[arm] = math.fsum(rewards)
        self.reward_sum = math.fsum(self.sums)
        self._teach_anew()

    def _teach_anew(self):
        self._bounds = None
        if self.twin is None:
            return
        if self.twin.slow and self.counts.sum() > MOST_TAUGHT:
            self._give_up("a reward was taken back, and its slow twin would take long to learn the others again")
            return
        self.twin = twin_of(self.config, self.features)
        gone = np.flatnonzero(~self.active).tolist()
        if gone:
            self.twin.remove(gone)
        taught(self.twin, self.counts, self.sums)

    def close(self, shown, expected, among):
        """Whether a sum is that of the log: exactly, but for the rounding of a retraction."""
        return shown == expected or (bool(self.retracted) and abs(shown - expected) <= SUMS * max(1.0, abs(among)))

    def record(self, arm, reward):
        """Teach the twin, once the group's decisions are checked."""
        self._bounds = None
        if self.twin is not None:
            self.twin.record(arm, reward)


def _coins(seed, number):
    """Two uniform numbers from a seed and a decision's number."""
    digest = hashlib.blake2b(number.to_bytes(8, "little"), key=seed.to_bytes(8, "little"), digest_size=16).digest()
    return tuple((int.from_bytes(half, "little") >> 11) / 2**53 for half in (digest[:8], digest[8:]))
