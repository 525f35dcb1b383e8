"""What becomes of a damaged state folder: the service starts on it, is asked about everything, stops, starts again."""

import asyncio
import logging
from typing import NamedTuple

from flip_state import BANDITS, in_portions, settings_of
from uncrashed import fingerprint, planned

from sketchbandits.service.bandits.requests import Decide, Refusal, Reward
from sketchbandits.service.log import LogDamaged, LogInUse, Uncertain
from sketchbandits.service.service import Service

NEXT = 5  # decisions of each bandit after everything else
PATIENCE = 60.0  # seconds for each step
REFUSALS = (LogDamaged, LogInUse, Uncertain, OSError, ValueError)  # for which the command prints a sentence
CLOCK_SECONDS = 5.0  # by which a clock may be wrong
PORTION = 200


class Verdict(NamedTuple):
    """One of the words in `flips`, and why."""

    kind: str
    why: str


class Silent(Exception):
    """Something is not as it was, and nobody said so."""


class Loop(Exception):
    """The service has ended, or ends again and again."""


class Heard(logging.Handler):
    """What the service has logged."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage() + (f" {record.exc_info[1]!r}" if record.exc_info else ""))


def attempt(state, truth):
    """Everything, on a folder that may be damaged."""
    heard, logger = Heard(), logging.getLogger("sketchbandits.service")
    logger.addHandler(heard)
    try:
        return asyncio.run(_attempt(state, truth, heard))
    finally:
        logger.removeHandler(heard)


async def _attempt(state, truth, heard):
    files = {path: path.read_bytes() for path in state.glob("events.db*") if path.suffix in (".db", ".db-wal")}
    try:
        try:
            service = await _started(state)
        except REFUSALS as error:
            changed = [path.name for path, data in files.items() if not path.exists() or path.read_bytes() != data]
            if "nothing was changed" in str(error) and changed:
                return Verdict("SILENT", f"refused ({error}), but {changed} changed")
            return Verdict("refused", str(error))
        first = await _served(service, truth)
        before = fingerprint(service.ledger)
        await _stopped(service)
        try:
            service = await _started(state)
        except REFUSALS as error:
            raise Loop(f"the second start is refused: {error}") from None
        if fingerprint(service.ledger) != before:
            raise Silent("the state after the second start is another")
        await _asked(service, truth, first, again=True)
        await _stopped(service)
    except Silent as error:
        return Verdict("SILENT", f"{error}; said: {heard.lines[:3]}")
    except Loop as error:
        return Verdict("CRASH LOOP", f"{error}; said: {heard.lines[:3]}")
    except Exception as error:
        return Verdict("CRASH LOOP", f"{type(error).__name__}: {error}; said: {heard.lines[:3]}")
    return Verdict("told", heard.lines[0]) if heard.lines else Verdict("harmless", "")


async def _started(state):
    service = Service(settings_of(state))
    try:
        await asyncio.wait_for(service.start(), PATIENCE)
    except BaseException:
        await service.stop()
        raise
    return service


async def _stopped(service):
    try:
        await asyncio.wait_for(service.stop(), PATIENCE)
    except Exception as error:
        raise Loop(f"the service stops with {type(error).__name__}: {error}") from None


async def _served(service, truth):
    """Compare the state, ask about everything, decide; returns the last record of ``truth`` that is there."""
    try:
        last = _prefix(service, truth)
        until = asyncio.get_running_loop().time() + PATIENCE
        while service.scrubber.passes == 0:
            if asyncio.get_running_loop().time() > until:
                raise Loop("the scrub does not end")
            await asyncio.sleep(0.005)
        if service.keys.all() != truth.keys:
            raise Silent("the API keys are others")
        for text, valid in truth.texts.items():
            if (service.keys.find(text) is not None) != valid:
                raise Silent("a valid API key is refused, or a revoked one is not")
        if abs(service.clock.ahead) > CLOCK_SECONDS:
            raise Silent(f"the clock is {service.clock.ahead:.0f} s wrong")
        await _asked(service, truth, last)
        await _go_on(service, truth, last)
    except BaseException:
        await service.stop()
        raise
    return last


def _prefix(service, truth):
    """The record of ``truth`` up to which the state goes: the last, unless what is missing was said to be cut off."""
    last = service.writer.log.last.seq
    if last > truth.last:
        raise Silent(f"{last - truth.last} records were added")
    if last < truth.last and not service.writer.log.cuts:
        raise Silent(f"{truth.last - last} records are missing")
    if fingerprint(service.ledger) != fingerprint(truth.ledger(last)):
        raise Silent(f"the state after record {last} is another")
    return last


async def _answer(service, request):
    """An answer; none where it can no longer be given because of damage, which was said."""
    answer = await asyncio.wait_for(service.writer.submit(request), PATIENCE)
    if service.writer.failure is not None:
        raise Loop(f"the service has ended after a request: {service.writer.failure!r}")
    if isinstance(answer, Refusal):
        if answer.code != "damaged":
            raise Loop(f"{request} is refused: {answer.code}: {answer.message}")
        return None
    return answer


async def _asked(service, truth, last, *, again=False):
    """Every reward and every key again; those behind the last record may be unknown by now."""
    for bandit in BANDITS:
        own = [(name, outcome) for name, outcome in truth.outcomes.items() if outcome.bandit == bandit]
        for portion in in_portions(((name, outcome) for name, outcome in own if outcome.seq <= last), PORTION):
            await _rewards(service, bandit, portion)
    for request, seq, decisions in truth.keyed:
        if seq > last:
            continue
        answer = await _answer(service, request)
        if answer is not None:
            found = [(decision["decision_id"], decision["arm"]) for decision in answer["decisions"]]
            if found != decisions or not answer["repeated"]:
                raise Silent(f"the key {request.key} of record {seq} is answered anew")


async def _rewards(service, bandit, portion):
    """The same reward again is known, another one is in conflict."""
    items = tuple((name, outcome.reward) for name, outcome in portion)
    for status, offset in (("known", 0.0), ("conflict", 0.25)):
        shifted = tuple((name, value + offset if value < 0.5 else value - offset) for name, value in items)
        answer = await _answer(service, Reward(bandit, shifted))
        if answer is None:
            if len(portion) > 1:  # who else is concerned?
                for one in portion:
                    await _rewards(service, bandit, [one])
            return
        for result, (name, _) in zip(answer["results"], items, strict=True):
            if result["status"] != status:
                raise Silent(f"the reward of {name} is {result['status']}, not {status}")


async def _go_on(service, truth, last):
    """Decisions are those that the undamaged state would make, with new numbers, and can be rewarded."""
    expected = truth.ledger(last)
    for bandit in BANDITS:
        answer = await _answer(service, Decide(bandit, None, None, NEXT))
        ids = [decision["decision_id"] for decision in answer["decisions"]]
        number = int(ids[0].partition("-")[0])
        if number < expected.next_number:
            raise Silent(f"the number {number} is used a second time")
        (change,) = planned(expected, [Decide(bandit, None, None, NEXT)], 0.0, number).changes
        arms = [expected.bandits[bandit].ids[arm] for arm in change.data["arms"]]
        if [decision["arm"] for decision in answer["decisions"]] != arms:
            raise Silent(f"the next decisions of {bandit} are others")
        accepted = await _answer(service, Reward(bandit, tuple((name, 0.5) for name in ids[1:])))
        if {result["status"] for result in accepted["results"]} != {"accepted"}:
            raise Silent(f"new rewards are not accepted: {accepted}")
