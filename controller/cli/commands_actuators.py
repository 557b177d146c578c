"""`governor actuators`, `release` and `undo`: who can move what, and how people get their values back."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from controller.cli.running import CONFIG, config_in_force, load_config
from controller.cli.terminal import FAILED, WRONG_INPUT, out, say, warn
from controller.cli.times import parse_duration
from controller.config import GovernorConfig, terms
from controller.config.matrix import cells, claims
from controller.core.errors import InputError
from controller.core.model import Applied, Lever, Outcome, Pin, Target
from controller.core.words import clock, number
from controller.explain import outcome_words
from controller.rehearse.lines import write_line
from controller.run import lock, originals, pins
from controller.run.handback import Revert, elsewhere, neutrals, put_back, restored, reverts
from controller.run.ledger import LedgerError, read_ledger

_UNDO = "undo of the last"  # how the reason of our own pins begins


def register(app: typer.Typer) -> None:
    """Add the commands of this room."""
    app.command(short_help="List actuators, and what each can move.")(actuators)
    app.command(short_help="Put targets at rest, or as they were found.")(release)
    app.command(short_help="Take back what was changed lately.")(undo)


def actuators(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line per actuator and lever.")] = False,
) -> None:
    """Lists what is installed and what each can do with each lever, at most; a config may allow less."""
    rows = claims()
    if as_json:
        for kind, lever, one in rows:
            write_line(sys.stdout, {"actuator": kind, "lever": lever.value, **cells(one)})
        return
    if not out().is_terminal:
        for kind, lever, one in rows:
            words = ", ".join(f"{name} {value}" for name, value in cells(one).items() if name != "note")
            out().print(f"{kind} {lever}: {words}; {one.note}", soft_wrap=True)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("actuator", "lever", *(cells(rows[0][2]) if rows else ())):
        table.add_column(heading, overflow="fold")
    for kind, lever, one in rows:
        table.add_row(*map(Text, (kind, lever.value, *cells(one).values())))
    out().print(table)


_Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TARGET]...", help="POOL, POOL/LEVER or POOL/LEVER/MEMBER; without it all."),
]
_Patience = Annotated[str, typer.Option("--wait", metavar="TIME", help="How long to try what cannot be reached yet.")]


def release(
    targets: _Targets = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Put back the values found before Governor's first write.")
    ] = False,
    wait: _Patience = "20s",
    config: CONFIG = None,
) -> None:
    """Hands the fleet back when no Governor runs: every lever but replicas goes to where it does nothing. With
    --restore each value, that of replicas too, becomes what it was before Governor's first write."""
    settings, patience = load_config(config), parse_duration(wait, "--wait")
    file = originals.file_of(Path(settings.ledger.path))
    known = originals.read(file)
    chosen = _chosen(restored(settings, known) if restore else neutrals(settings, known), targets or [])
    if not chosen:
        what = "no value from before Governor's first write is recorded" if restore else _unknown(settings)
        out().print(f"nothing to put back: {what}", soft_wrap=True)
        return
    away = elsewhere(settings, {target: known[target] for target in chosen}) if restore else {}
    for target, words in sorted(away.items()):
        warn(f"{target} stays as it is: {words}")
    wanted = {target: value for target, value in chosen.items() if target not in away}
    landed = _tell(wanted, put_back(settings, wanted, patience)) if wanted else set()
    if restore and landed:
        originals.write(file, {target: one for target, one in known.items() if target not in landed})
    if len(landed) < len(chosen):
        raise typer.Exit(FAILED)


def undo(
    last: Annotated[str, typer.Option("--last", metavar="TIME", help="Take back what was changed in this time: 10m.")],
    targets: _Targets = None,
    lasting: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long the old values are held while a Governor runs.")
    ] = "30m",
    show: Annotated[bool, typer.Option("--show", help="Only tell what would be taken back.")] = False,
    wait: _Patience = "20s",
    config: CONFIG = None,
) -> None:
    """Takes back, by the ledger, what was changed in the last minutes. While a Governor runs the old values are pinned,
    because it would otherwise decide the same again; else they are set at once. A pin that somebody
    set, by hand or in the config, stays."""
    settings, now = config_in_force(config), time.time()
    patience, hold = parse_duration(wait, "--wait"), parse_duration(lasting, "--for")
    folder = Path(settings.ledger.path)
    damage: list[LedgerError] = []
    changes = reverts(read_ledger(folder, damage), now - parse_duration(last, "--last"))
    for unread in damage:
        warn(f"{unread}; what was changed there is not taken back")
    wanted = _chosen({one.target: one.before for one in changes}, targets or []) if changes else {}
    if not wanted:
        out().print(f"nothing was changed in the last {last}{', by what can be read' if damage else ''}")
        if damage:
            raise typer.Exit(WRONG_INPUT)
        return
    mine = [one for one in changes if one.target in wanted]
    for one in mine:
        out().print(f"{one.target} {number(one.after)} → {number(one.before)}", soft_wrap=True)
    if show:
        return
    if _runs(folder):
        if not _pin(settings, mine, now, hold, last):
            raise typer.Exit(FAILED)
        say("the running Governor takes them at its next tick; `governor unpin TARGET` gives one back")
    elif len(_tell(wanted, put_back(settings, wanted, patience))) < len(wanted):
        raise typer.Exit(FAILED)


def _pin(settings: GovernorConfig, changes: Iterable[Revert], now: float, hold: float, last: str) -> bool:
    """Whether any was pinned. What a person pinned is meant, and stays; an undo may take the place of an undo."""
    pinned, fixed = False, terms.pins(settings)
    with pins.edit(pins.file_of(Path(settings.ledger.path))) as entries:
        for one in changes:
            by_hand = entries.get(one.target)
            there = by_hand.pin if by_hand is not None and by_hand.pin.until > now else fixed.get(one.target)
            if there is not None and there.until > now and not there.reason.startswith(_UNDO):
                until = clock(there.until, date=True)
                mend = "; `governor unpin` it first to take it back" if there != fixed.get(one.target) else ""
                warn(f"{one.target} stays pinned at {number(there.value)} until {until} UTC ({there.reason}){mend}")
                continue
            entries[one.target] = pins.Entry(Pin(one.before, now + hold, f"{_UNDO} {last}"), now)
            pinned = True
    if pinned:
        out().print(f"pinned until {clock(now + hold, date=True)} UTC")
    return pinned


def _runs(folder: Path) -> bool:
    """Whether a Governor writes to this ledger."""
    try:
        lock.release(lock.acquire(folder))
    except lock.Taken:
        return True
    except OSError as error:
        raise LedgerError(f"ledger {folder}: {error.strerror or error}; check ledger.path and the rights") from error
    return False


def _unknown(settings: GovernorConfig) -> str:
    """Why nothing is known that could be at another value than at rest."""
    levers = [
        f"{pool.pool}/{lever.lever}" for pool in terms.fleet_rules(settings).pools for lever in pool.levers
        if lever.lever is not Lever.REPLICAS
    ]  # fmt: skip
    return f"no write of Governor to {', '.join(levers)} is recorded" if levers else "no lever but replicas"


def _chosen(wanted: Mapping[Target, float], names: Sequence[str]) -> dict[Target, float]:
    """Those that are in one of the names; all where there are no names. Raises InputError for a name with nothing in
    it."""
    for name in names:
        if not any(_is_in(target, name) for target in wanted):
            there = ", ".join(sorted({f"{t.pool}/{t.lever}" for t in wanted})) or "none"
            raise InputError(f"{name}: nothing of that name can be put back; there are {there}")
    return {t: value for t, value in wanted.items() if not names or any(_is_in(t, name) for name in names)}


def _is_in(target: Target, name: str) -> bool:
    return name in (target.pool, f"{target.pool}/{target.lever}", str(target))


def _tell(wanted: Mapping[Target, float], told: Iterable[Applied]) -> set[Target]:
    """Print the outcomes; the targets that hold what was wanted."""
    landed = set()
    for one in told:
        line = f"{one.target} at {number(wanted[one.target])}: {outcome_words(one)}"
        if one.outcome is Outcome.DONE:
            landed.add(one.target)
            out().print(line, soft_wrap=True)
        else:
            warn(line)
    return landed
