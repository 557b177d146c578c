"""A flood by one tenant, with standing caps in the closed loop: the others notice little, and nobody starves.

Behind the gate that stands before every controller: what the engines cannot run waits, tenants by turns. Alone the caps
let a model's 95 % of two small replicas in, and a burst of that waits in the engines, first come, first served.
"""

from collections.abc import Mapping
from functools import cache
from statistics import fmean
from typing import Any, NamedTuple

import pytest
import yaml

from benchmarks.disasters import FLOOD
from controller.simulate.load import Origin, Study
from controller.simulate.pilots import Governor, Nobody
from controller.simulate.run import drive
from simulator.job import Ending
from simulator.scenario import Scenario
from simulator.truth import ENDINGS

MEMBERS = ("acme", "birch", "cedar")
GUARANTEE = 4000.0  # tokens/s of the one that floods; its part of 2 replicas would be about 6,000
BURST = 65_536  # tokens: 10 s of a part, and more than any request has
GATE = {"concurrency": {"per_slot": 1}, "queue": {"fair": True}}
seeds = pytest.mark.parametrize("seed", [1, 2])
MANY = (1, 2, 3, 4)


def study(*, flood: bool, gate: bool) -> Study:
    """The scenario as it is shipped, with caps on its tenants and a replica of known speed."""
    data: dict[str, Any] = yaml.safe_load(FLOOD.path.read_text(encoding="utf-8"))
    data["fleet"]["pools"]["chat"]["gateway"]["knobs"] = {
        "other_tenants": {"token_burst": BURST},
        **(GATE if gate else {}),
    }
    if not flood:
        del data["traffic"]["chat"][1]
    labels = {"tenant": "fairness_id", "class": "request_class"}
    data["governor"]["pools"]["chat"].update(
        gateway={"engine": "gaie", "selector": {"model_name": "chat"}, "labels": labels},
        tenants={**{name: {} for name in MEMBERS}, "newcomer": {"guarantee": GUARANTEE}},
        profile={
            "base": "14.76ms", "prefill_token": "51.1us", "sequence": "36.2us", "kv_token": "27.1ns",
            "attention": "2.37ns", "max_num_seqs": 64, "kv_tokens": 428_146,
        },
        levers={"tenant_cap": {"mode": "auto", "policy": {"kind": "fair_share"}}},
    )  # fmt: skip
    return Origin(yaml.safe_dump(data), "tenant-flood with caps", str(FLOOD.path.parent)).load()


class Outcome(NamedTuple):
    """A run: the share of the members' requests of the flood that kept their promise, the least part of its max-min
    share that each tenant got while it was backlogged, and tokens/s that the newcomer was served in its flood but for
    the first minute."""

    members: float
    fairness: Mapping[str, float]
    newcomer: float


@cache
def outcome(seed: int, *, flood: bool = True, caps: bool = True, gate: bool = True) -> Outcome:
    found = study(flood=flood, gate=gate)
    scenario = found.scenario
    assert isinstance(scenario, Scenario)
    world = scenario.world(seed)
    pilot = Governor(world, found.config) if caps else Nobody(world)
    score = drive(scenario, world, pilot, contender="caps", seed=seed, interval=found.config.interval).score
    (event,) = scenario.events
    jobs = world.truth.jobs
    arrived = jobs.column("arrived") - scenario.start
    mine = jobs.column("tenant") == jobs.tenants.number("newcomer") if flood else arrived < 0
    served = mine & (arrived >= event.begin + 60.0) & (jobs.column("ending") == ENDINGS.index(Ending.FINISHED))
    tokens = float((jobs.column("prompt")[served] + jobs.column("output")[served]).sum())
    members = score.events["flood"].classes["member"].attainment
    assert members is not None
    return Outcome(members, score.fairness, tokens / (event.end - event.begin - 60.0))


def test_the_others_lose_no_more_than_a_point_by_the_flood() -> None:
    """Over four floods: two of them cost nearly nothing, two a point and a half."""
    quiet = fmean(outcome(seed, flood=False).members for seed in MANY)

    assert fmean(outcome(seed).members for seed in MANY) >= quiet - 0.01
    assert fmean(outcome(seed, caps=False).members for seed in MANY) < quiet - 0.01  # the same gate without caps


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.xfail(strict=True, reason="1.5 points: a trend is followed faster"))]
)
def test_the_others_lose_no_more_than_a_point_by_any_flood(seed: int) -> None:
    assert outcome(seed).members >= outcome(seed, flood=False).members - 0.01


@seeds
def test_every_tenant_gets_its_max_min_share_and_nobody_starves(seed: int) -> None:
    assert all(share >= 0.9 for share in outcome(seed).fairness.values())
    assert min(outcome(seed, caps=False, gate=False).fairness.values()) < 0.6  # what it is without either


@seeds
def test_the_one_that_floods_keeps_its_guarantee(seed: int) -> None:
    assert outcome(seed).newcomer >= GUARANTEE
