"""make bench-control: Governor, its peers and the bounds on all scenarios; writes docs/benchmarks.md.

python -m benchmarks.control [--only CASE,...] [--seeds N] [--short] [--against NAME,...] [--levers] [--cores N]
                             [--page FILE] [--list] [--fresh]

Results are kept in build/bench-control, so that a bench that was interrupted goes on where it was. The whole bench
writes docs/benchmarks.md; a part of it writes build/bench-control/benchmarks.md, unless told otherwise.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.control import budget, contenders
from benchmarks.control.cache import FOLDER, Cache
from benchmarks.control.cases import ROOT, Case, cases, chosen, levers, tiny
from benchmarks.control.crew import Interrupted, Told, run_all
from benchmarks.control.criteria import verdicts
from benchmarks.control.measures import average, critical, everything, hours, inside, nearest, runs
from benchmarks.control.page import PLOTS, Bench, text
from benchmarks.control.planner import FIRST_TRAINING, Program, Result, result
from benchmarks.control.plant import CHAT
from benchmarks.control.plots import scatter, timeline
from benchmarks.control.task import Outcome, Task
from benchmarks.control.words import number, share
from controller.cli.outputs import to_file, to_folder
from controller.core.errors import InputError
from controller.simulate.jobs import NONE, ORACLE, STATIC
from controller.simulate.words import contender

PAGE = ROOT / "docs" / "benchmarks.md"
SEEDS, TRAINING = 5, 2
MORE = 20  # seeds in all for sets of levers between which a step looks too dear
SUBSETS_OF = "levers"  # the case on which every set of levers is tried
SHORT = (NONE, "hpa", STATIC, ORACLE)


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 when a case could not be run, 2 for wrong arguments, 130 when interrupted, 143 when ended by
    SIGTERM."""
    given = _given(words)
    console = Console(highlight=False, markup=False)
    if given.cases:
        for case in [*cases(), tiny()]:
            console.print(f"{case.name:34} {case.title}{f' ({case.absent})' if case.absent else ''}", soft_wrap=True)
        return 0
    wanted, program = given.wanted, given.program
    absent = [(case, case.absent) for case in wanted if case.absent]
    wanted = [case for case in wanted if not case.absent]
    estimated = budget.total(wanted, program)
    console.print(
        f"{len(wanted)} scenarios, {len(program.seeds)} seeds: about {estimated:,.0f} core-seconds, "
        f"{estimated / given.cores / 60:.0f} minutes on {given.cores} cores when nothing is known yet",
        soft_wrap=True,
    )
    cache = Cache(given.cache)
    if given.fresh:
        for case in wanted:
            cache.forget(case.name)
    begin = time.monotonic()
    try:
        with _progress() as told:
            found, broken = run_all(wanted, program, cache, cores=given.cores, told=told)
    except Interrupted as end:
        print("interrupted; what was finished is kept", file=sys.stderr)
        return 128 + end.signal
    done = [result(case, program, found[case.name]) for case in wanted if case.name not in broken]
    absent += [(case, broken[case.name]) for case in wanted if case.name in broken]
    for one in done:
        _say(console, one, budget.estimate(one.case, program))
    bench = Bench(
        done, absent, len(program.seeds), len(cases()), len(program.training), everyone=program.wanted is None
    )
    for verdict in verdicts({one.case.name: one for one in done}):
        if verdict.met is not None:
            mark = "met" if verdict.met else "NOT MET"
            console.print(f"{verdict.place}  {mark:8} {verdict.asked}: {verdict.measured}", soft_wrap=True)
    page = given.page or (given.cache / "benchmarks.md" if bench.partial else PAGE)
    _write(bench, page)
    for case, why in absent:
        console.print(f"left out: {case.name}: {why}", soft_wrap=True)
    console.print(f"{time.monotonic() - begin:,.0f} s; wrote {page}", soft_wrap=True)
    return 1 if broken else 0


class Given(argparse.Namespace):
    """The arguments."""

    only: str | None
    seeds: int | None
    short: bool
    against: str | None
    levers: bool
    cores: int
    page: Path | None
    cache: Path
    cases: bool
    fresh: bool
    wanted: list[Case]
    program: Program


def _given(words: Sequence[str] | None) -> Given:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", default=None, help="names of cases, with commas; NAME* for all that begin so")
    parser.add_argument("--seeds", type=int, default=None, help=f"how many seeds are scored (default {SEEDS})")
    parser.add_argument("--short", action="store_true", help="a tiny scenario, one seed, few contenders: seconds")
    parser.add_argument("--against", default=None, help="contenders beside Governor, with commas (default: all)")
    parser.add_argument("--levers", action="store_true", help="every set of Governor's levers, and nothing else")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--page", type=Path, default=None, help="where the page goes")
    parser.add_argument("--cache", type=Path, default=FOLDER, help=f"where results are kept (default {FOLDER})")
    parser.add_argument("--list", dest="cases", action="store_true", help="the cases, and whether they can be run here")
    parser.add_argument("--fresh", action="store_true", help="run anew what is known of these scenarios")
    given = parser.parse_args(words, Given())
    if given.seeds is not None and not 0 < given.seeds < FIRST_TRAINING:
        parser.error(f"--seeds: is {given.seeds}; write 1 to {FIRST_TRAINING - 1}")
    if given.cores < 1:
        parser.error(f"--cores: is {given.cores}; write 1 or more")
    names, rivals = _named(given.only), _named(given.against)
    known = (NONE, *(one.name for one in contenders.peers()), STATIC, ORACLE)
    if given.against is not None and not rivals:
        parser.error(f"--against: names nobody; write some of {', '.join(known)}")
    if given.only is not None and not names:
        parser.error("--only: names no case; write names that --list tells")
    if stranger := next((name for name in rivals if name not in known), None):
        parser.error(f"--against: there is no contender {stranger!r}; write some of {', '.join(known)}")
    try:
        given.wanted = chosen(names) if names else [tiny()] if given.short else cases()
    except ValueError as error:
        parser.error(f"--only: {error}")
    try:
        if not given.cases:
            _writable(given)
    except InputError as error:
        parser.error(str(error))
    seeds = given.seeds or (1 if given.short else SEEDS)
    training = 1 if given.short else TRAINING
    if given.levers:
        given.wanted, rivals = [levers()], (NONE,)
    subsets = {case.name: _sets(case) for case in given.wanted if case.name == SUBSETS_OF}
    given.program = Program(
        tuple(range(1, seeds + 1)),
        tuple(range(FIRST_TRAINING, FIRST_TRAINING + training)),
        rivals or (SHORT if given.short else None),
        subsets,
        tuple(range(seeds + 1, MORE + 1)),
    )
    return given


def _named(words: str | None) -> tuple[str, ...]:
    return tuple(name for name in (words or "").split(",") if name)


def _writable(given: Given) -> None:
    """Hours later nobody is there to name another place. Raises InputError."""
    to_folder(given.cache, "--cache")
    if given.page is None:
        return
    to_file(given.page, "--page")
    plots = _plots(given.page)
    if plots == given.page:
        raise InputError(f"--page {given.page}: its plots go into a folder of that name; name a file such as page.md")
    if plots.exists():
        to_folder(plots, f"--page {given.page}: its plots go into")


def _sets(case: Case) -> tuple[tuple[str, ...], ...]:
    """Every non-empty set of the levers that Governor has in a case."""
    names = tuple(contenders.governed(case)["pools"][CHAT]["levers"])
    return tuple(some for size in range(1, len(names) + 1) for some in itertools.combinations(names, size))


@contextmanager
def _progress() -> Iterator[Told]:
    """A bar on standard error; nothing where nobody looks."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda _task, _outcome, _done, _of: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("runs", total=None)

        def told(one: Task, _outcome: Outcome | None, done: int, of: int) -> None:
            bar.update(task, completed=done, total=of, description=f"{one.case}: {contender(one.contender)}")

        yield told


def _say(console: Console, one: Result, estimated: float) -> None:
    """A case in a few lines."""
    console.print(f"\n{one.case.title}: {one.cpu:,.0f} core-seconds, {estimated:,.0f} estimated", style="bold")
    for name in one.runs:
        some = runs(one, name)
        tuned = f" at {one.tuned[name]:g}" if name in one.tuned else ""
        events = [f"in {event} {share(average(some, inside(event)))}" for event in (some[0].events if some else ())]
        console.print(
            f"  {contender(name) + tuned:24} critical {share(average(some, critical)):>6}"
            f"  all {share(average(some, everything)):>6}  GPU-hours {number(average(some, hours), 2):>7}"
            f"  {'  '.join(events)}",
            soft_wrap=True,
        )


def _plots(page: Path) -> Path:
    """The folder of a page's plots."""
    return page.with_suffix("")


def _write(bench: Bench, page: Path) -> None:
    """The page and its plots, in a folder of its name beside it."""
    folder = _plots(page)
    plots = {}
    page.parent.mkdir(parents=True, exist_ok=True)
    for one in bench.results:
        if one.case.name in PLOTS:
            folder.mkdir(exist_ok=True)
            for kind, drawn in (("time", timeline(one, nearest(one))), ("cost", scatter(one))):
                (folder / f"{one.case.name}-{kind}.svg").write_text(drawn, encoding="utf-8")
            plots[one.case.name] = f"{folder.name}/{one.case.name}"
    page.write_text(text(bench, plots), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
