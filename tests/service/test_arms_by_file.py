"""An edited file of arms: new rows are added, missing ones named, and nothing keeps the service from starting."""

import logging

import numpy as np
import pytest
from service_tools import ARMS, IDS, bandit, run, service_at

from sketchbandits.service.bandits.requests import CreateBandit

SECOND = ARMS[:2] * 0.5


def edited(ids, features, **rules):
    return bandit(**rules), CreateBandit("default", bandit(**rules).config, tuple(ids), np.ascontiguousarray(features))


async def started(state, wanted, **settings):
    """The active arms after a start with these arms, and the arms' ids in the log's order."""
    async with service_at(state, wanted, **settings) as (service, client):
        made = service.ledger.bandits["default"]
        assert (await client.post("/v1/decisions", json={})).status_code == 200
        return [made.ids[arm] for arm in made.active], made.ids[:]


def test_new_rows_are_added_and_missing_ones_named(tmp_path, caplog):
    first, changed = edited((*IDS[2:], "new"), np.concatenate([ARMS[2:], SECOND[:1]]))

    async def check():
        assert (await started(tmp_path / "s", first))[0] == list(IDS)
        with caplog.at_level(logging.WARNING):
            active, _ = await started(tmp_path / "s", changed)
            assert active == [*IDS, "new"]
            assert "arm 'new': new in the file: added" in caplog.text
            assert "arms 'a0', 'a1': not in the file" in caplog.text and "--remove-missing-arms" in caplog.text
            active, ids = await started(tmp_path / "s", changed, remove_missing_arms=True)
            assert active == [*IDS[2:], "new"] and "removed from bandit 'default'" in caplog.text
        assert (await started(tmp_path / "s", first))[0] == active, "what was removed stays removed"
        assert (await started(tmp_path / "s", changed))[1] == ids

    run(check())


def test_the_same_file_changes_nothing(tmp_path, caplog):
    async def check():
        for _ in range(2):
            with caplog.at_level(logging.WARNING):
                assert (await started(tmp_path / "s", bandit()))[1] == list(IDS)
        assert not caplog.records

    run(check())


def test_other_features_are_named_and_not_used(tmp_path, caplog):
    first, changed = edited(IDS, np.concatenate([ARMS[:-1], ARMS[-1:] * 0.5]))

    async def check():
        await started(tmp_path / "s", first)
        with caplog.at_level(logging.WARNING):
            async with service_at(tmp_path / "s", changed) as (service, _):
                np.testing.assert_array_equal(service.ledger.bandits["default"].policy.arms, ARMS)
        assert f"arm {IDS[-1]!r}: other features in the file" in caplog.text

    run(check())


def test_a_policy_with_fixed_arms_goes_on_with_its_own(tmp_path, caplog):
    first, changed = edited((*IDS, "new"), np.concatenate([ARMS, SECOND[:1]]), policy="lints")

    async def check():
        await started(tmp_path / "s", first)
        with caplog.at_level(logging.WARNING):
            assert (await started(tmp_path / "s", changed))[0] == list(IDS)
        assert "goes on with its own arms" in caplog.text and "'lints'" in caplog.text

    run(check())


def test_another_number_of_features_is_refused(tmp_path):
    first, changed = edited(IDS, ARMS[:, :-1])

    async def check():
        await started(tmp_path / "s", first)
        with pytest.raises(ValueError, match=r"arms must have the 5 features .* got 4"):
            await started(tmp_path / "s", changed)
        assert (await started(tmp_path / "s", first))[0] == list(IDS)

    run(check())
