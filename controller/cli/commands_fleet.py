"""`governor serve-fleet`: the fleet twin in real time, for a real Prometheus and real gateways."""

import time
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.terminal import out, warn


def register(app: typer.Typer) -> None:
    """Add the commands of this room."""
    app.command("serve-fleet", short_help="Serve a simulated fleet over HTTP, in real time.")(serve_fleet)


def serve_fleet(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="The scenario file; see docs/simulating.md.")],
    port: Annotated[
        int, typer.Option(metavar="PORT", min=1, max=65_000, help="The fleet's own port; replicas get the next ones.")
    ] = 9400,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to serve on.")] = "127.0.0.1",
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The seed of all chance.")] = 0,
    traffic: Annotated[
        bool, typer.Option("--traffic/--no-traffic", help="Whether the scenario's own requests come, too.")
    ] = True,
) -> None:
    """Serves the fleet of a scenario until told to stop: one OpenAI-compatible streaming server per replica, with
    /metrics and /health. On the fleet's own port: /targets for Prometheus' http_sd_configs, /metrics as
    kube-state-metrics has it, and /replicas for Governor's webhook actuator."""
    from controller import registry
    from controller.simulate.load import open_study

    study = open_study(scenario)
    for sentence in study.scenario.warnings():
        warn(f"{scenario}: {sentence}")
    start = time.time()
    world = study.scenario.world(seed, start=start, traffic=traffic)

    def ready() -> None:
        own = f"http://{host}:{port}"
        out().print(
            f"serving {study.scenario.name} since {start:.3f}: {own}/targets, {own}/metrics, {own}/replicas",
            soft_wrap=True,
        )

    registry.tool("serve-fleet")(world, host, port, ready)
