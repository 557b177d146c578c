"""Rig of ``file`` over a real nginx, whose configuration a template makes."""

import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from actuators.file import File, FileConfig
from controller.core.model import Lever, Outcome, Target
from controller.core.ports import Binding
from tests.actuators.rigs import Rig
from tests.support.nginx import TEMPLATE, nginx

START = {Target("chat", Lever.WEIGHT, f"r{n}"): share for n, share in ((1, 0.5), (2, 0.6), (3, 0.2))}


def nginx_rig(folder: Path, stack: ExitStack) -> Rig:
    server = stack.enter_context(nginx(folder, {str(target): share for target, share in START.items()}))
    template = folder / "nginx.conf.j2"
    template.write_text(TEMPLATE.read_text())
    runs, ending = folder / "runs", folder / "ending"
    runs.write_text("")
    reload = " ".join(server.command("-s", "reload", "-c", str(server.output)))
    ending.write_text(reload)
    config = FileConfig(
        path=str(server.values), template=str(template), output=str(server.output), variables=server.variables,
        check=server.command("-t", "-c", "{file}"), timeout=1.0, quantum=0.01,
        reload=("sh", "-c", 'echo x >> "$0"; . "$1"', str(runs), str(ending)),
    )  # fmt: skip

    def values() -> dict[Target, float]:
        text = server.output.read_text()
        found = {name: re.search(rf"server {place} weight=(\d+)", text) for name, place in server.places.items()}
        return {target: int(match[1]) / 100 for target in START if (match := found[target.member])}

    def edit(value: float) -> None:
        server.values.write_text(server.values.read_text().replace("0.5", str(value), 1))

    rig = Rig(
        File(config, Binding((), scopes=(("chat", Lever.WEIGHT),))), File.describe(config)[Lever.WEIGHT], START,
        up=0.55, down=0.5, other=0.7, values=values, touched=lambda: runs.read_text().count("x"), edit=edit,
        fail=lambda: ending.write_text("exit 1"),
        refuse=lambda: template.write_text("nonsense;\n"),
    )  # fmt: skip
    return replace(rig, lose=lambda: ending.write_text(f"{reload}; exec tail -f /dev/null"), lost=Outcome.FAILED)


RIGS = {"file-nginx": nginx_rig}
