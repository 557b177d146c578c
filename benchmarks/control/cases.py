"""The cases of the bench: each a scenario, how it is judged, and which contenders it is for.

Public traces are named relative to a folder, `@traces/...`, so that a case is the same on every machine; a case whose
trace is absent is left out with that reason.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.control.plant import (
    CHAT,
    COLD_START,
    DELAY,
    INTERVAL,
    PROFILE,
    SCRAPE,
    SHEDDABLE,
    Data,
    asked,
    engine,
    gate,
    lengths,
    life,
    pool,
    scenario,
    seconds,
    web,
)  # fmt: skip

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT.parent / "shared" / "data" / "traces"
AT = "@traces/"
SHORT, LONG = 38.0, 60.0  # minutes of a flash; a constant fleet is cheap where the crowd fills half of the time
DIRECT_AT = 480.4  # seconds: when the straggler that is scraped directly begins, between two scrapes
FLASH_AT, FLASH_END = 12.0, 25.0  # minutes: when the rise begins, and until when what follows from it is looked at
# Seconds between which nothing is seen: from the rise on, and again before the windows are full.
OUTAGES = ((720.0, 1020.0), (1065.0, 1125.0))
ERRORS = (0.7, 0.85, 1.0, 1.2, 1.4)  # of step times that Governor is given
TIMES = "\u00d7"
FULL, BOUNDED, OWN = "full", "bounded", "own"


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario of the bench.

    `scope` is who is run: ``full`` has the peers and the bounds, ``bounded`` the peers alone, ``own`` Governor and no
    controller. `floor` is the event over which the arithmetic least of shedding is known. `profile` are step-time
    coefficients that Governor is given, relative to the true ones, in the pool ``chat``; None when it has to learn all.
    `interval` are the seconds from tick to tick.
    `tenants` are tokens/s that tenants were promised. `baseline` is the case that an axis is varied on."""

    name: str
    title: str
    about: str
    scenario: Data
    scope: str = BOUNDED
    floor: str = ""
    profile: Mapping[str, float] | None = None
    tenants: Mapping[str, float] = field(default_factory=dict)
    cold_start: float = COLD_START
    interval: float = INTERVAL
    baseline: str = ""
    trace: str = ""

    @property
    def absent(self) -> str:
        """Why it cannot be run here; empty when it can."""
        if self.trace and not (TRACES / self.trace).is_file():
            return f"the trace {self.trace} is not in ../shared/data/traces"
        return ""


def placed(value: Any) -> Any:
    """The scenario with traces where they are on this machine."""
    if isinstance(value, Mapping):
        return {key: placed(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [placed(one) for one in value]
    return str(TRACES / value.removeprefix(AT)) if isinstance(value, str) and value.startswith(AT) else value


# --- shapes ----------------------------------------------------------------------------------------------------------


def diurnal(**more: Any) -> Data:
    """A day in 90 minutes: trough, ramp, peak, ramp, trough."""
    shape = {"kind": "diurnal", "period": "90m", "peak_at": "45m", "peak": 1.0, "trough": 0.25}
    return _chat(90, web(10.5, [shape]), replicas=5, **more)


def flash(
    factor: float, *, sheddable: float = SHEDDABLE, retry: bool = False, minutes: float = SHORT, **more: Any
) -> Data:
    """A crowd: up within two minutes, there for eight."""
    shape = {"kind": "flash", "at": f"{FLASH_AT}m", "rise": "2m", "hold": "8m", "fall": "2m", "factor": factor}
    stream = {**web(5.2, [shape]), **asked(sheddable, retry)}
    return _chat(minutes, stream, replicas=8, events=[("flash", FLASH_AT, FLASH_END)], **more)


def _chat(
    minutes: float, *streams: Data, replicas: int, cold_start: float = COLD_START, knobs: Data | None = None,
    strategy: str = "least-loaded", more_of_pool: Data | None = None, **more: Any,
) -> Data:  # fmt: skip
    one = pool(replicas, cold_start=cold_start, knobs=knobs, strategy=strategy, **(more_of_pool or {}))
    return scenario(minutes, {CHAT: one}, {CHAT: streams}, **more)


# --- scenarios -------------------------------------------------------------------------------------------------------


def _traces() -> list[Case]:
    azure = "azure_llm_2023_conv.csv.gz"
    mooncake = "mooncake_conversation_trace.jsonl.gz"
    servegen = "servegen_realised_deepseek-r1_24h.csv.gz"
    copied = {"scaling": "independent"}
    reasoning = {"engine": engine(slots=16), "gpus": 8}  # the trace's answers are three times as long
    evening = {"since": "69600s", "until": "84600s"}
    return [
        Case(
            "azure", "Azure conversation",
            "The 58 minutes of the Azure conversation trace, 1.6 times the requests, prompts 6 and answers 2.4 times as"
            " long: its requests are those of a small model, the fleet is of a large one.",
            _chat(
                58, {
                    "kind": "azure", "name": "azure", "file": AT + azure, "factor": 1.6, "prompt_factor": 6,
                    "answer_factor": 2.4, "longest": 30_000, **copied, **asked(),
                }, replicas=9, warm_up=5.0,
            ),
            FULL, trace=azure,
        ),
        Case(
            "mooncake", "Mooncake conversation",
            "The first 46 minutes of the Mooncake conversation trace with its shared prefixes, 2.7 times the requests,"
            " without prompts of more than 32,000 tokens, behind prefix affinity; promised are 8 s and 200 ms.",
            _chat(
                46, {
                    "kind": "mooncake", "name": "mooncake", "file": AT + mooncake, "factor": 2.7, "longest": 32_000,
                    **copied, **asked(ttft=8.0),
                }, replicas=12, warm_up=5.0, strategy="prefix-affinity",
                promises={"default": {"ttft": "8s", "tpot": "200ms"}},
            ),
            trace=mooncake,
        ),
        Case(
            "servegen", "ServeGen day, evening",
            "Of 24 h of ServeGen (DeepSeek-R1, 73 tenants): 19:20 to 23:30, which has a night level, the steepest ramp"
            " up, the peak of the day and the ramp down. Two thirds of the requests; replicas of 16 sequences on eight"
            " GPUs.",
            _chat(
                250, {
                    "kind": "requests", "name": "day", "file": AT + servegen, "factor": 0.66, **evening, **copied,
                    **asked(),
                }, replicas=5, warm_up=10.0, more_of_pool=reasoning,
            ),
            FULL, trace=servegen,
        ),
        Case(
            "servegen-trough", "ServeGen day, trough",
            "The same fleet from 12:00 to 13:20, which has the lowest load of the day.",
            _chat(
                80, {
                    "kind": "requests", "name": "day", "file": AT + servegen, "factor": 0.66, "since": "43200s",
                    "until": "48000s", **copied, **asked(),
                }, replicas=4, warm_up=10.0, more_of_pool=reasoning,
            ),
            OWN, trace=servegen,
        ),
    ]  # fmt: skip


def _shaped() -> list[Case]:
    step = {"kind": "step", "at": "15m", "length": "20m", "factor": 2}
    ramp = {"kind": "piecewise", "points": [
        {"at": "10m", "factor": 1}, {"at": "25m", "factor": 2}, {"at": "35m", "factor": 2}, {"at": "45m", "factor": 1},
    ]}  # fmt: skip
    twice = {"kind": "flash", "at": "12m", "rise": "1m", "hold": "3m", "fall": "1m", "factor": 2, "every": "9m"}
    once = {"kind": "step", "at": "29m", "factor": 0.5}  # a third flash is none
    saw = {"kind": "sawtooth", "period": seconds(4 * COLD_START), "low": 0.6, "high": 1.4}
    return [
        Case("diurnal", "Diurnal", "A day in 90 minutes, its peak four times its trough.", diurnal(), FULL),
        Case(
            "step", "Step", "Twice the requests from one second to the next, for twenty minutes.",
            _chat(42, web(5.2, [step]), replicas=9, events=[("step", 15, 30)]), floor="step",
        ),
        Case(
            "ramp", "Ramp", "Twice the requests within fifteen minutes, ten minutes of them, and back within ten.",
            _chat(52, web(5.2, [ramp]), replicas=9, events=[("ramp", 10, 27)]),
        ),
        Case(
            "two-flashes", "Two flashes",
            "The second crowd comes four minutes after the first has gone: whoever has let go by then pays twice.",
            _chat(36, web(5.2, [twice, once]), replicas=9, events=[("first", 12, 20), ("second", 21, 29)]),
        ),
        Case(
            "sawtooth", "Sawtooth",
            "Load that swings with a period of four dead times, at which a loop with that delay amplifies most.",
            _chat(50, web(7, [saw]), replicas=9),
        ),
    ]  # fmt: skip


def _flashes() -> list[Case]:
    cases = []
    for factor in (1.9, 3.0):
        for sheddable in (SHEDDABLE, 0.0):
            for retry in (False, True):
                plain = sheddable and not retry
                name = f"flash-{factor:g}" + ("" if sheddable else "-none-sheddable") + ("-retries" if retry else "")
                about = (
                    f"A crowd of {factor:g} times the usual requests within two minutes, for eight. "
                    + (f"{sheddable:.0%} of them may be shed first" if sheddable else "None may be shed first")
                    + ("; who is refused comes again, up to twice." if retry else ".")
                )
                cases.append(
                    Case(
                        name, f"Flash {TIMES}{factor:g}" + ("" if sheddable else ", none sheddable")
                        + (", retries" if retry else ""),
                        about, flash(factor, sheddable=sheddable, retry=retry, minutes=LONG if plain else SHORT),
                        FULL if plain else BOUNDED,
                        floor="" if retry else "flash",
                    )
                )  # fmt: skip
    cases.append(
        Case(
            "flash-3-no-gate", f"Flash {TIMES}3, no gate",
            "The same crowd without the data-plane gate: no cap, no deadlines, no classes.", flash(3.0, knobs={}),
            baseline="flash-3",
        )
    )  # fmt: skip
    return cases


def _changes() -> list[Case]:
    short = {**web(7, name="short", end="15m"), "prompt": {"kind": "lognormal", "mean": 4000, "p99": 12_000}}
    long = {**web(7, name="long", start="15m"), "prompt": {"kind": "lognormal", "mean": 12_000, "p99": 30_000}}
    shared = {
        **web(14, [{"kind": "step", "at": "14m", "length": "14m", "factor": 0.35}]),
        "prompt": {"kind": "lognormal", "mean": 2500, "p99": 8000},
        "prefix": {"tokens": {"kind": "fixed", "tokens": 6000}, "prompts": 120, "zipf": 0.6},
    }
    dawn = {"kind": "piecewise", "points": [{"at": "22m", "factor": 0.2}, {"at": "40m", "factor": 1}]}
    morning = _chat(56, web(10.5, [dawn]), replicas=4, events=[("morning", 22, 45)])
    wrong = {"a": 1.6, "b": 0.7, "c": 0.7, "d": 0.7, "e": 0.7}
    return [
        Case(
            "prompt-shift", "Longer prompts", "At the same requests a second, prompts become three times as long.",
            _chat(36, short, long, replicas=7, events=[("shift", 15, 30)]),
        ),
        Case(
            "cold-caches", "Cold caches",
            "Prefix affinity with a high hit rate; the load falls to a third for a quarter of an hour and comes back,"
            " to replicas whose caches are empty.",
            _chat(44, shared, replicas=9, strategy="prefix-affinity", events=[("back", 28, 40)]),
        ),
        Case(
            "structure-known", "Morning ramp, right model",
            "Night, then five times the load within eighteen minutes. Governor is given the step times of the engine.",
            morning, OWN, profile={}, baseline="structure-known",
        ),
        Case(
            "structure-wrong", "Morning ramp, wrong model",
            "The same with step times that are wrong in structure: the fixed part 1.6 times, all others 0.7 times the"
            " truth. What is learned at night, with small batches, is wrong in the morning.",
            morning, OWN, profile=wrong, baseline="structure-known",
        ),
    ]  # fmt: skip


def _troubles() -> list[Case]:
    flashed = {"kind": "flash", "at": "12m", "rise": "2m", "hold": "8m", "fall": "2m", "factor": 1.9}
    later = {**flashed, "at": "16m"}
    quota = scenario(
        38, {CHAT: pool(6), "code": pool(6)},
        {CHAT: [web(3.4, [flashed])], "code": [web(3.4, [later], name="ide")]},
        fleet={"gpus": 64}, events=[("short", 12, 30)],
    )  # fmt: skip
    tenants = [{"name": "acme", "share": 3}, {"name": "birch", "share": 2}, {"name": "cedar", "share": 1}]
    lost = _chat(
        38, web(6.2, tenants=tenants), replicas=10, events=[("lost", 15, 33)],
        disturbances=[
            {"kind": "quota", "at": "15m", "pool": CHAT, "limit": 5, "duration": "14m"},
            {"kind": "reclaim", "at": "15m", "pool": CHAT, "share": 0.5, "notice": "30s"},
        ],
    )  # fmt: skip
    blind = flash(
        1.9, disturbances=[
            {"kind": "metrics_outage", "at": seconds(gone), "duration": seconds(back - gone)} for gone, back in OUTAGES
        ],
    )  # fmt: skip
    return [
        Case(
            "quota", "Quota with two pools",
            "64 GPUs, sixteen replicas, for two pools whose crowds overlap and would need more.", quota,
        ),
        Case(
            "half-lost", "Half the fleet lost",
            "Half of the nodes are reclaimed and no others are to be had for 14 minutes; what three tenants were"
            " promised is more than what is left.",
            lost, tenants={"acme": 21_000, "birch": 14_000, "cedar": 7000},
        ),
        Case(
            "blind", "Metrics outage at a flash",
            "Prometheus is gone for five minutes from the onset of a crowd of 1.9 times on, comes back, and is gone for"
            " one more minute before its windows are full.",
            blind,
        ),
        *_failing(),
        *_flood(),
    ]  # fmt: skip


def _failing() -> list[Case]:
    cases = []
    for count in (2, 8):
        rate = 0.62 * count
        cases.append(
            Case(
                f"failing-{count}", f"Errors, then a straggler, N = {count}",
                f"One of {count} replicas answers errors at once for five minutes, which makes it look idle; later one"
                " is four times as slow for six minutes.",
                _chat(
                    36, web(rate), replicas=count, events=[("errors", 10, 15), ("slow", 20, 28)],
                    disturbances=[
                        {"kind": "errors", "at": "10m", "pool": CHAT, "replica": 1, "duration": "5m"},
                        {"kind": "straggler", "at": "20m", "pool": CHAT, "replica": 0, "factor": 4, "duration": "6m"},
                    ],
                ),
            )
        )  # fmt: skip
    slow = {"kind": "straggler", "at": seconds(DIRECT_AT), "pool": CHAT, "replica": 0, "factor": 4, "duration": "3m"}
    short = {**web(1.6 * 8), **lengths(1000, 300)}
    scene = _chat(
        16, short, replicas=8, warm_up=6.0, events=[("slow", 8, 13)], disturbances=[slow],
        scrape={"interval": "1s", "delay": "0s"},
    )  # fmt: skip
    about = (
        "One of eight replicas is four times as slow for three minutes; engines are scraped directly every second, and"
        " every second is decided. Prompts of 1,000 and answers of 300 tokens: one of 8,000 alone blocks an engine for"
        " most of a second."
    )
    cases.append(Case("failing-direct", "A straggler, scraped directly", about, scene, OWN, interval=1.0))
    half = {"kind": "straggler", "at": "12m", "pool": CHAT, "share": 0.5, "factor": 4, "duration": "6m"}
    scene = _chat(30, web(5), replicas=8, events=[("slow", 12, 20)], disturbances=[half])
    about = "Four of eight replicas are four times as slow."
    cases.append(Case("half-slow", "Half the fleet slow", about, scene, OWN))
    return cases


def levers() -> Case:
    """A crowd in which every lever has something to move: three tenants, a smaller model with room, consent, a replica
    that turns slow and one that answers errors, and a gate that was set for batches twice as large."""
    shape = {"kind": "flash", "at": f"{FLASH_AT}m", "rise": "2m", "hold": "8m", "fall": "2m", "factor": 3}
    tenants = [{"name": "acme", "share": 3}, {"name": "birch", "share": 2}, {"name": "cedar", "share": 1}]
    route = {"pool": "small", "share": 0.0, "classes": ["*"], "tenants": ["*"]}
    pools = {
        CHAT: pool(9, knobs=gate(downgrade=[route], concurrency={"per_slot": 2.0})),
        "small": pool(2, engine=engine(4.0), gpus=1, model_name="small"),
    }
    traffic = {CHAT: [web(5.2, [shape], tenants=tenants)], "small": [web(1.5, name="own")]}
    faults = [
        {"kind": "straggler", "at": "13m", "pool": CHAT, "replica": 0, "factor": 3, "duration": "8m"},
        {"kind": "errors", "at": "16m", "pool": CHAT, "replica": 1, "duration": "3m"},
    ]
    return Case(
        "levers", f"Flash {TIMES}3 with all levers",
        "A crowd of three times the usual requests, of three tenants, who consent to a smaller model with some room;"
        " meanwhile one replica is three times as slow and another answers errors, and the gate lets in twice what the"
        " batches hold.",
        scenario(28, pools, traffic, events=[("flash", FLASH_AT, FLASH_END)], disturbances=faults), OWN,
        tenants={"acme": 12_000, "birch": 8000, "cedar": 4000}, baseline="levers",
    )  # fmt: skip


def _flood() -> list[Case]:
    members = web(4.2, name="members", tenants=[{"name": "acme"}, {"name": "birch"}, {"name": "cedar"}])
    flooder = web(14, name="flooder", tenants=[{"name": "flooder"}], start="12m", end="22m")
    usual = web(0.8, name="usual", tenants=[{"name": "flooder"}])
    small = {**web(5.2, name="small")}
    route = {"pool": "small", "share": 0.0, "classes": ["*"], "tenants": ["*"]}
    pools = {
        CHAT: pool(8, knobs=gate(downgrade=[route]), quota=12),
        "small": pool(2, engine=engine(4.0), gpus=1, model_name="small"),
    }
    promised = {"acme": 20_000, "birch": 20_000, "cedar": 20_000, "flooder": 8000}
    about = (
        "Three tenants and a fourth that sends far more than its share for ten minutes; twelve replicas are all there"
        " is, and the pool of the smaller model is nearly full with its own traffic."
    )
    cases = []
    for name, streams in (("flood", [members, usual, flooder]), ("flood-calm", [members, usual])):
        calm = "calm" in name
        cases.append(
            Case(
                name, "Tenant flood" + (", without the flood" if calm else ""),
                "The same fleet without the flood." if calm else about,
                scenario(34, pools, {CHAT: streams, "small": [small]}, events=[("flood", 12, 24)]),
                OWN if calm else BOUNDED, tenants=promised, baseline="flood-calm",
            )
        )  # fmt: skip
    return cases


def _axes() -> list[Case]:
    """One thing at a time is varied, on the day and on the larger crowd."""
    return [
        case
        for base, title, make in (
            ("diurnal", "Diurnal", diurnal),
            ("flash-3", f"Flash {TIMES}3", partial(flash, 3.0, minutes=LONG)),
        )
        for case in _varied(base, title, make)
    ]


def _varied(base: str, title: str, make: Callable[..., Data]) -> Iterator[Case]:
    floor = "flash" if base.startswith("flash") else ""
    for cold in (60.0, 420.0):
        yield Case(
            f"{base}-cold-{cold:g}", f"{title}, cold start {cold:g} s", "Another cold start.", make(cold_start=cold),
            OWN, floor=floor, cold_start=cold, baseline=base,
        )  # fmt: skip
    for error in ERRORS:
        yield Case(
            f"{base}-model-{error:g}", f"{title}, step times {TIMES}{error:g}",
            f"Governor is given step times that are {error:g} times the truth.", make(), OWN, floor=floor,
            profile=dict.fromkeys(PROFILE, error), baseline=f"{base}-model-1",
        )  # fmt: skip
    for delay in (15.0, 30.0):
        yield Case(
            f"{base}-delay-{delay:g}", f"{title}, scrapes {delay:g} s late",
            f"A scrape can be queried after {delay:g} s in place of {DELAY:g} s.",
            make(scrape={"interval": seconds(SCRAPE), "delay": seconds(delay)}), OWN, floor=floor, baseline=base,
        )  # fmt: skip


def tiny() -> Case:
    """What the short form runs: a crowd on small, quick replicas, a second of computing."""
    stream = web(2.5, [{"kind": "flash", "at": "3m", "rise": "30s", "hold": "90s", "fall": "30s", "factor": 2.5}])
    small = pool(3, engine=engine(1.5), life=life(45.0))
    scene = scenario(7, {CHAT: small}, {CHAT: [stream]}, warm_up=1.0, cool_down=0.5, events=[("flash", 3, 6)])
    return Case("tiny", "Tiny flash", "The short form: seven minutes.", scene, FULL, floor="flash", cold_start=45.0)


def cases() -> list[Case]:
    """All, in the order of the page."""
    return [*_traces(), *_shaped(), *_flashes(), *_changes(), *_troubles(), levers(), *_axes()]


def chosen(names: Sequence[str]) -> list[Case]:
    """Those of these names; a name that ends in `*` stands for all that begin so. Raises ValueError."""
    known = [*cases(), tiny()]
    found: dict[str, Case] = {}
    for name in names:
        hits = [one for one in known if one.name == name or (name.endswith("*") and one.name.startswith(name[:-1]))]
        if not hits:
            raise ValueError(f"there is no case {name!r}; write some of {', '.join(one.name for one in known)}")
        found.update({one.name: one for one in hits})
    return [one for one in known if one.name in found]
