"""``sketchbandits replay``: what another policy would have earned on the decisions in a service's log."""

from functools import partial
from typing import Annotated

import typer

from sketchbandits import offline, validate
from sketchbandits.cli.flags import bad_values_refused, flag, whole
from sketchbandits.cli.state import database_of, verified_records
from sketchbandits.policies.registry import PolicySpec
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.log.decisions import read_bandit


def command(
    state: Annotated[str, typer.Argument(metavar="STATE", help="The folder of a service, or postgresql://...")],
    policy: Annotated[str, flag("NAME:OPTION=VALUE", "The policy to judge.", "multiscale")] = "multiscale",
    bandit: Annotated[str, flag("NAME", "Whose decisions.", "default")] = "default",
    estimator: Annotated[str, flag("replay|ips", "As it learns, or frozen halfway.", "replay")] = "replay",
    seed: Annotated[str, flag("N", "The same seed gives the same estimate.", 0)] = "0",
) -> None:
    """Judge another policy by a log: what it would have earned.

    Only a log with exploration permits it: see `serve --exploration`.
    """
    database = database_of(state)
    with bad_values_refused(policies="--policy"):
        validate.option("estimator", estimator, ("replay", "ips"))
        spec = PolicySpec.parse(policy)
        config = BanditConfig(policy=spec.name, options=dict(spec.options), seed=whole(seed))
        with verified_records(database) as records:
            found = read_bandit(records, bandit)
            build = partial(config.build, found.features)
            if estimator == "replay":
                result = offline.replay(found.decisions, build, name=str(spec), seed=config.seed)
            else:
                result = offline.ips(found.decisions, build, name=str(spec))
    print(result.text(), end="")
