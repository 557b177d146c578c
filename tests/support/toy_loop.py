"""A loop without a world: what the daemon drives in its tests. Also a program, so that signals are real ones:
`python -m tests.support.toy_loop CONFIG`, where CONFIG is a JSON file with the fields of `ToyConfig`.

Ticks are told on standard output as JSON lines; `held` ticks wait for a line on standard input, so that a test decides
how long a tick takes.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.core.model import Applied, Lever, Mode, Plan, PoolReadings, Snapshot, Tick
from controller.core.ports import Estimate
from controller.core.slo import Objective
from controller.run import logs
from controller.run.daemon import Daemon
from controller.run.leave import leave
from controller.run.loop import TickResult
from controller.run.settings import LeverSettings, Settings
from tests.support.build import TTFT, decision, readings


def result(
    snapshot: Snapshot,
    plan: Plan | None = None,
    estimates: Mapping[str, Estimate] | None = None,
    applied: tuple[Applied, ...] = (),
    seconds: Mapping[str, float] | None = None,
    *,
    ledger_ok: bool = True,
) -> TickResult:
    """What a tick leaves behind, made by hand."""
    phases = seconds or {"observe": 0.02, "total": 0.03}
    return TickResult(snapshot, estimates or {}, plan or Plan(snapshot.tick.at), applied, phases, ledger_ok)


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
    grace: float = 20.0
    doubts: tuple[str, ...] = ()

    def settings(self) -> Settings:
        promises: dict[str, tuple[Objective, ...]] = dict.fromkeys(self.pools, (TTFT,))
        levers = {pool: {Lever.REPLICAS: LeverSettings(Mode.AUTO, 1, 8)} for pool in self.pools}
        return Settings(self.interval, self.deadline, self.listen, f"hash-{self.name}", promises, levers, self.doubts)


def tell(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class ToyLoop:
    """Counts its ticks, and takes the count over from the loop before it."""

    def __init__(self, config: ToyConfig) -> None:
        self._config = config
        self.count = 0
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True

    def tick(self, at: float) -> TickResult:
        self.count += 1
        number, config = self.count, self._config
        tell("begin", at=at, tick=number, loop=config.name)
        if number in config.held:
            sys.stdin.readline()
        if self.stopped:
            tell("nothing sent", tick=number)
        if number in config.crash:
            raise ArithmeticError(f"tick {number} is meant to fail")
        pools: dict[str, PoolReadings] = {} if number in config.blind else {p: readings() for p in config.pools}
        error = "connection refused" if number in config.blind else ""
        tell("end", at=at, tick=number, loop=config.name)
        return result(Snapshot(Tick(number, at), pools, {}, error), Plan(at, (decision(),)))

    def adopt(self, previous: "ToyLoop") -> None:
        self.count = previous.count

    def close(self) -> None:
        tell("closed", loop=self._config.name)


def load(path: Path) -> ToyConfig:
    read: dict[str, Any] = json.loads(path.read_text())
    fields: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in read.items()}
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
    daemon = Daemon(
        path=path,
        load=lambda: load(path),
        build=build,
        describe=ToyConfig.settings,
        version="0.0",
        mode="live",
        poll=0.1,
        grace=load(path).grace,
    )
    return leave(daemon.run(), within=0.2)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
