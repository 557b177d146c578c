"""`governor pin`, `unpin` and `pins`: a person's word on one target, for a while and with a reason.

They write the file of pins in the ledger's folder, which the running Governor looks at at every tick. Nothing is asked
of it over HTTP: its interface stays read-only, and whoever may write the file may pin.
"""

import math
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from controller.cli.running import CONFIG, config_in_force
from controller.cli.terminal import out, say, warn
from controller.cli.times import parse_duration, parse_time
from controller.cli.yielding import foreign
from controller.config import GovernorConfig, LeverConfig, terms
from controller.config.errors import BadValue
from controller.config.lever_checks import on_quantum
from controller.config.pin_checks import together
from controller.config.report import nearest
from controller.config.setpoint_checks import limits_of
from controller.config.units import ratio
from controller.core.errors import InputError
from controller.core.group import most_out
from controller.core.model import Decision, Lever, Mode, Pin, PoolReadings, Target
from controller.core.relief import OUT
from controller.core.rules import PER_REPLICA
from controller.core.setpoints import OWN
from controller.core.why import Why
from controller.core.words import clock, number
from controller.rehearse.lines import write_line
from controller.run import pins
from controller.run.ledger import LedgerError, Record, ledger_files, read_ledger

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(%)?", re.ASCII)  # Python takes 1_2 for 12
_LONGEST = 500  # characters of a reason
_Target = Annotated[str, typer.Argument(metavar="TARGET", help="POOL/LEVER, or POOL/LEVER/MEMBER.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this room."""
    app.command(short_help="Hold a value by hand for a while.")(pin)
    app.command(short_help="Give a value back to its policy.")(unpin)
    app.command(name="pins", short_help="List the pins.")(pins_)


def pin(
    target: _Target,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value, in the unit of the lever.")],
    reason: Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why, for whoever reads it.")] = "",
    lasting: Annotated[str | None, typer.Option("--for", metavar="TIME", help="How long: 2h, 30m.")] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Until when: 2026-12-24T18:00:00Z.")
    ] = None,
    config: CONFIG = None,
) -> None:
    """Holds a value, whatever its policy wants, until the time is over. Hard bounds hold for it too, and the lever's
    mode says whether it is sent. The running Governor takes it at its next tick; it wins over a pin of the config. What
    somebody else set is left alone for a while all the same, which is said."""
    settings, now = config_in_force(config), time.time()
    chosen, lever = _target(settings, target)
    wanted = Pin(_value(chosen, lever, value), _end(lasting, until, now), _reason(reason))
    ledger = Path(settings.ledger.path)
    newest = _newest(ledger)
    _member(chosen, lever, newest)
    with pins.edit(_file(settings)) as entries:
        others = {t: entry.pin for t, entry in entries.items() if entry.pin.until > now}
        _one_left(chosen, lever, wanted, others, newest)
        _within_budgets(settings, chosen, wanted, others, now)
        before = entries.get(chosen)
        entries[chosen] = pins.Entry(wanted, now)
    said = f"{chosen} pinned at {number(wanted.value)} until {clock(wanted.until, date=True)} UTC: {wanted.reason}"
    out().print(said, soft_wrap=True)
    if before is not None and before.pin.until > now:
        out().print(f"It was pinned at {number(before.pin.value)}: {before.pin.reason}", soft_wrap=True)
    if lever.mode in (Mode.OFF, Mode.OBSERVE):
        warn(f"{chosen}: the lever is in mode {lever.mode}, so the pin is not sent; write mode: auto to have it act")
    elif lever.mode is Mode.PROTECT:
        warn(f"{chosen}: the lever is in mode protect, so the pin may only tighten or add")
    _tell_cap(chosen, lever, wanted, others, newest)
    theirs = foreign(settings, ledger, newest, chosen, now)
    if theirs is not None and theirs.value != wanted.value and lever.mode not in (Mode.OFF, Mode.OBSERVE):
        end = "while they go on with it" if theirs.until is None else f"until {clock(theirs.until, date=True)} UTC"
        at = "" if theirs.value is None else f" at {number(theirs.value)}"
        again = "" if theirs.until is None else ", longer if they write it again"
        warn(f"{chosen}: {theirs.writer} has set it, and it is left{at} {end}{again}; the pin acts after that")
    say("the running Governor takes it at its next tick")


def unpin(target: _Target, config: CONFIG = None) -> None:
    """Ends a pin. The value stays where it is until its policy moves it, within the guards."""
    settings = config_in_force(config)
    wanted = _parse(target)
    with pins.edit(_file(settings)) as entries:
        gone = entries.pop(wanted, None)
        if gone is None:
            if wanted in terms.pins(settings):
                raise InputError(f"{wanted}: is pinned in the config; remove the pin there")
            there = ", ".join(map(str, sorted(entries))) or "none"
            raise InputError(f"{wanted}: is not pinned; pinned are {there}")
    out().print(f"{wanted} unpinned; it was pinned at {number(gone.pin.value)}: {gone.pin.reason}", soft_wrap=True)


def pins_(
    config: CONFIG = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line per pin.")] = False,
) -> None:
    """Lists the pins of the file and of the config, with what they are worth now."""
    settings, now = config_in_force(config), time.time()
    by_hand, fixed = pins.read(_file(settings)), terms.pins(settings)
    newest = _newest(Path(settings.ledger.path)) if by_hand or fixed else None
    rows: list[tuple[Target, Pin, str, str]] = []
    for target, entry in by_hand.items():
        rows.append((target, entry.pin, "command", _state(settings, target, entry.pin, now, newest)))
    for target, one in fixed.items():
        over = target in by_hand and by_hand[target].pin.until > now and one.until > now
        rows.append((target, one, "config", "overruled" if over else _state(settings, target, one, now, newest)))
    rows.sort(key=lambda row: (row[0], row[2]))
    if as_json:
        for target, one, origin, state in rows:
            plain = {"target": str(target), "value": one.value, "until": one.until, "reason": one.reason}
            write_line(sys.stdout, {**plain, "from": origin, "state": state})
        return
    if not rows:
        out().print("nothing is pinned")
        return
    if not out().is_terminal:
        for target, one, origin, state in rows:
            when = clock(one.until, date=True)
            out().print(f"{target} {number(one.value)} until {when} ({origin}, {state}): {one.reason}", soft_wrap=True)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("target", "value", "until (UTC)", "from", "state", "reason"):
        table.add_column(heading, overflow="fold")
    for target, one, origin, state in rows:
        cells = (str(target), number(one.value), clock(one.until, date=True), origin, state, one.reason)
        table.add_row(*map(Text, cells))
    out().print(table)


def _state(config: GovernorConfig, target: Target, one: Pin, now: float, newest: Record | None) -> str:
    """What a pin is worth, by the config and by the newest plan that knew it: bounds, modes and other people's writes
    stand above pins, and of replicas one stays in rotation."""
    if one.until <= now:
        return "ended"
    pool = config.pools.get(target.pool)
    if pool is None or target.lever not in pool.levers:
        return "no such target"
    lever = pool.levers[target.lever]
    if target.lever not in PER_REPLICA and target.member not in terms.members(target.lever, lever, pool):
        return "no such target"
    readings = newest.snapshot.pools.get(target.pool) if newest is not None else None
    seen = _seen(readings, lever) if readings is not None and target.lever in PER_REPLICA else ()
    if seen and target.member not in seen:
        return f"no such {lever.by} is seen"
    if lever.mode in (Mode.OFF, Mode.OBSERVE):
        return "not sent"
    limits = limits_of(target.lever, lever, target.member)
    bound = min(max(one.value, limits.min), limits.max)
    if bound != one.value:  # of the config as it is now; the newest plan may have been made by the one before
        return f"held at {number(bound)}: {Why.MAX_BOUND if bound < one.value else Why.MIN_BOUND}"
    made = _decided(newest, target, one)
    if made is not None and made.final != one.value:
        return f"held at {number(made.final)}: {made.why}"
    return "in force"


def _decided(newest: Record | None, target: Target, one: Pin) -> Decision | None:
    """What was last decided under this pin; None when the pin is younger than that."""
    owner = newest.snapshot.targets.get(target) if newest is not None else None
    if newest is None or owner is None or owner.pin is None:
        return None
    if (owner.pin.value, owner.pin.reason) != (one.value, one.reason):
        return None
    return next((made for made in newest.plan.decisions if made.target == target), None)


def _file(config: GovernorConfig) -> Path:
    return pins.file_of(Path(config.ledger.path))


def _parse(text: str) -> Target:
    pool, _, rest = text.partition("/")
    lever, _, member = rest.partition("/")
    if lever not in set(Lever):
        mend = nearest(lever, list(Lever)) if lever else "write POOL/LEVER or POOL/LEVER/MEMBER"
        raise InputError(f"{text}: {lever!r} is no lever; {mend}")
    return Target(pool, Lever(lever), member)


def _target(config: GovernorConfig, text: str) -> tuple[Target, LeverConfig]:
    """The target, as far as the config can tell that there is one, and its lever. Raises InputError."""
    target = _parse(text)
    pool = config.pools.get(target.pool)
    if pool is None:
        raise InputError(f"{text}: there is no pool {target.pool!r}; {nearest(target.pool, config.pools)}")
    lever = pool.levers.get(target.lever)
    if lever is None:
        there = ", ".join(pool.levers) or "none"
        raise InputError(f"{text}: {target.pool} has no lever {target.lever}; it has {there}")
    members = terms.members(target.lever, lever, pool)
    if target.lever in PER_REPLICA and not target.member:
        raise InputError(f"{text}: says no replica; write {target.pool}/{target.lever}/REPLICA")
    if target.lever not in PER_REPLICA and target.member not in members:
        if members == ("",):
            raise InputError(f"{text}: {target.lever} has no members; write {target.pool}/{target.lever}")
        mend = nearest(target.member, members) if target.member else f"write one of {', '.join(members)} behind it"
        raise InputError(f"{text}: {target.lever} has no member {target.member!r}; {mend}")
    return target, lever


def _seen(readings: PoolReadings, lever: LeverConfig) -> tuple[str, ...]:
    """Names of the replicas, or zones, that were seen, sorted."""
    if lever.by == "zone":
        return tuple(sorted({zone for name, zone in readings.zones.items() if name in readings.replicas}))
    return tuple(sorted(readings.replicas))


def _member(target: Target, lever: LeverConfig, newest: Record | None) -> None:
    """Replicas are not in the config; the newest record of the ledger knows those that were seen. Raises InputError."""
    if target.lever not in PER_REPLICA:
        return
    readings = newest.snapshot.pools.get(target.pool) if newest is not None else None
    if readings is None or not readings.replicas:
        warn(f"{target}: no replica of {target.pool} is in the ledger, so nobody can tell whether there is this one")
    elif target.member not in _seen(readings, lever):
        raise InputError(f"{target}: no such {lever.by} is seen; {nearest(target.member, _seen(readings, lever))}")


def _one_left(
    target: Target, lever: LeverConfig, wanted: Pin, others: Mapping[Target, Pin], newest: Record | None
) -> None:
    """Of a pool's replicas one at least must get requests. Raises InputError."""
    readings = newest.snapshot.pools.get(target.pool) if newest is not None else None
    if target.lever not in PER_REPLICA or wanted.value > 0 or newest is None or readings is None:
        return
    rest = {name: Target(target.pool, target.lever, name) for name in _seen(readings, lever) if name != target.member}
    pinned = [name for name, one in rest.items() if one in others and others[one].value <= 0]
    out = [name for name, one in rest.items() if name not in pinned and _accepted(newest, one) <= 0]
    if len(pinned) + len(out) < len(rest):
        return
    others_are = [f"{', '.join(names)} {what}" for names, what in ((pinned, "pinned at 0"), (out, "out")) if names]
    mend = f"unpin {rest[pinned[0]]} first, or write" if pinned else "write"
    raise InputError(
        f"{target}: at {number(wanted.value)} no replica of {target.pool} would be in rotation "
        f"({'; '.join(others_are) or 'it is the only one'}); {mend} more than 0"
    )


def _within_budgets(
    config: GovernorConfig, target: Target, wanted: Pin, others: Mapping[Target, Pin], now: float
) -> None:
    """Pins that no budget can hold together. One that only lowers what was too much is taken. Raises InputError."""
    if target.lever is not Lever.REPLICAS:
        return
    known = {**{one: pin for one, pin in terms.pins(config).items() if pin.until > now}, **others}
    before = known.get(target)
    if before is not None and wanted.value <= before.value:
        return
    pinned = {one.pool: pin.value for one, pin in {**known, target: wanted}.items() if one.lever is Lever.REPLICAS}
    for title, words in together(config, pinned):
        budget = config.budgets[title]
        if budget.pools == "all" or target.pool in budget.pools:
            more = [one for one in sorted(known) if one.lever is Lever.REPLICAS and one != target]
            mend = f"write less, unpin {more[0]}" if more else "write less"
            raise InputError(
                f"{target}: at {number(wanted.value)} this takes {words}; budgets hold for pins too, so {mend} or "
                "raise the budget"
            )


def _tell_cap(
    target: Target, lever: LeverConfig, wanted: Pin, others: Mapping[Target, Pin], newest: Record | None
) -> None:
    """A person may take out more than the breaker may; its policy then takes out no other, however bad."""
    readings = newest.snapshot.pools.get(target.pool) if newest is not None else None
    if target.lever not in PER_REPLICA or wanted.value >= OUT or newest is None or readings is None:
        return
    names, held = _seen(readings, lever), {**others, target: wanted}
    ones = [Target(target.pool, target.lever, name) for name in names]
    low = sum((held[one].value if one in held else _accepted(newest, one)) < OUT for one in ones)
    cap = most_out(len(names), lever.group)
    if low > cap:
        warn(
            f"{target}: with it {low} of {len(names)} are held back, and group allows {cap}: no other can be, "
            "however bad it is"
        )


def _accepted(newest: Record, target: Target) -> float:
    """The factor of a replica as it was last read; one that is not told is in rotation."""
    owner = newest.snapshot.targets.get(target)
    return 1.0 if owner is None or owner.accepted is None else owner.accepted


def _newest(ledger: Path) -> Record | None:
    try:
        return max(read_ledger(ledger_files(ledger)[-1], []), key=lambda record: record.at)
    except (LedgerError, OSError, IndexError, ValueError):
        return None


def _value(target: Target, lever: LeverConfig, text: str) -> float:
    limits = limits_of(target.lever, lever, target.member)
    own = target.lever is Lever.ADMISSION and target.member in OWN
    low, high = number(limits.min), number(limits.max)
    plain = _NUMBER.fullmatch(text)
    if plain is None or (plain[1] and limits.max > 1):
        raise InputError(f"VALUE: {text!r} is not a number; write for example {low}")
    try:
        value = ratio(text) if plain[1] else float(text)
    except BadValue as error:
        raise InputError(f"VALUE: {error.mistake}; {error.mend}") from error
    if own and not limits.min <= value <= limits.max:
        raise InputError(f"{target}: {text} is outside {low} and {high}; write a value between them")
    if not limits.min <= value <= limits.max:
        raise InputError(
            f"{target}: {text} is outside min {low} and max {high}; "
            "bounds hold for pins too, so write a value between them or change the bounds in the config"
        )
    if not on_quantum(value, limits.quantum):
        below = math.floor(value / limits.quantum) * limits.quantum
        near = [one for one in (below, below + limits.quantum) if limits.min - 1e-9 <= one <= limits.max + 1e-9]
        raise InputError(
            f"{target}: {text} is not a multiple of the quantum {limits.quantum:g}; "
            f"write {' or '.join(f'{one:g}' for one in near)}"
        )
    return value


def _reason(text: str) -> str:
    """One line, as everybody shows it who shows pins."""
    line = text.strip()
    if not line:
        raise InputError('--reason: is missing; write why, for example --reason "launch day"')
    if not line.isprintable():
        raise InputError("--reason: has a line break or a control character; write one line of text")
    if len(line) > _LONGEST:
        raise InputError(f"--reason: has {len(line):,} characters; write at most {_LONGEST}")
    return line


def _end(lasting: str | None, until: str | None, now: float) -> float:
    if (lasting is None) == (until is None):
        raise InputError("pin: give either --for 2h or --until 2026-12-24T18:00:00Z; every pin ends")
    if lasting is not None:
        return now + parse_duration(lasting, "--for")
    end = parse_time(str(until), "--until", now)
    if end <= now:
        raise InputError(
            f"--until {until}: is in the past ({clock(end, date=True)} UTC); write a later time, or --for 2h"
        )
    return end
