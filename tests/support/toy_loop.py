"""A loop without a world: what the daemon drives in its tests. Also a program, so that signals are real ones:
`python -m tests.support.toy_loop CONFIG`, where CONFIG is a JSON file with the fields of `ToyConfig`.

Ticks are told on standard output as JSON lines; `held` ticks wait for a line on standard input, so that a test decides
how long a tick takes.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controller.core.model import Applied, Lever, Mode, Plan, PoolReadings, Snapshot, Tick
from controller.core.ports import Estimate
from controller.core.slo import Objective
from controller.run import logs
from controller.run.daemon import Daemon
from controller.run.settings import LeverSettings, Settings
from tests.support.build import TTFT, decision, readings


@dataclass(frozen=True, slots=True)
class Result:
    """What `loop.TickResult` looks like."""

    snapshot: Snapshot
    plan: Plan = field(default_factory=lambda: Plan(0.0))
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    applied: tuple[Applied, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=lambda: {"observe": 0.02, "total": 0.03})


@dataclass(frozen=True, slots=True)
class ToyConfig:
    """`held`, `crash` and `blind` list tick numbers: those that wait for a line, raise, or see no source."""

    name: str = "one"
    interval: float = 0.2
    deadline: float = 0.1
    listen: str = "127.0.0.1:0"
    pools: tuple[str, ...] = ("llama",)
    held: tuple[int, ...] = ()
    crash: tuple[int, ...] = ()
    blind: tuple[int, ...] = ()
    refuses_to_build: bool = False

    def settings(self) -> Settings:
        promises: dict[str, tuple[Objective, ...]] = {pool: (TTFT,) for pool in self.pools}
        levers = {pool: {Lever.REPLICAS: LeverSettings(Mode.AUTO, 1, 8)} for pool in self.pools}
        return Settings(self.interval, self.deadline, self.listen, f"hash-{self.name}", promises, levers)


def tell(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class ToyLoop:
    """Counts its ticks, and takes the count over from the loop before it."""

    def __init__(self, config: ToyConfig) -> None:
        self._config = config
        self._count = 0

    def tick(self, at: float) -> Result:
        self._count += 1
        number, config = self._count, self._config
        tell("begin", at=at, tick=number, loop=config.name)
        if number in config.held:
            sys.stdin.readline()
        if number in config.crash:
            raise ArithmeticError(f"tick {number} is meant to fail")
        pools: dict[str, PoolReadings] = {} if number in config.blind else {p: readings() for p in config.pools}
        error = "connection refused" if number in config.blind else ""
        tell("end", at=at, tick=number, loop=config.name)
        return Result(Snapshot(Tick(number, at), pools, {}, error), Plan(at, (decision(),)))

    def adopt(self, previous: "ToyLoop") -> None:
        self._count = previous._count

    def close(self) -> None:
        tell("closed", loop=self._config.name)


def load(path: Path) -> ToyConfig:
    fields = {
        key: tuple(value) if isinstance(value, list) else value for key, value in json.loads(path.read_text()).items()
    }
    return ToyConfig(**fields)


def build(config: ToyConfig, previous: ToyLoop | None) -> ToyLoop:
    if config.refuses_to_build:
        raise RuntimeError("this plug-in cannot be built")
    loop = ToyLoop(config)
    if previous is not None:
        loop.adopt(previous)
    return loop


def main(path: Path) -> int:
    logs.configure()
    return Daemon(
        path=path,
        load=lambda: load(path),
        build=build,
        describe=ToyConfig.settings,
        version="0.0",
        mode="live",
        poll=0.1,
    ).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
