"""Capability match: which replicas can serve a request at all, and what was missing when none can.

It comes before every strategy: model, version, precision, hardware, region, tenant, context length, then the share of
canary versions. A zone is a preference, not a capability, and is left to the strategies; so is a LoRA adapter.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from routing.model import Ability, Replica, Request

_WISHES: Final = 1024  # remembered at most, the least recently seen is forgotten
_FIELDS: Final[Mapping[str, Callable[[Ability], str]]] = {  # in the order in which they narrow
    "model": lambda one: one.model,
    "version": lambda one: one.version,
    "precision": lambda one: one.precision,
    "hardware": lambda one: one.hardware,
    "region": lambda one: one.region,
}


@dataclass(frozen=True, slots=True)
class Match:
    """The replicas that fit, in their given order; when there is none, `missing` says what was looked for and what
    there is."""

    replicas: Sequence[Replica]
    missing: str = ""


class _Wish(NamedTuple):
    model: str
    version: str
    precision: str
    hardware: str
    region: str
    tenant: str


@dataclass(slots=True)
class _Fit:
    abilities: tuple[Ability, ...]  # that it was found for
    places: tuple[int, ...]
    shortest: float  # the shortest context among them, tokens
    longest: float
    shares: dict[str, float]  # of traffic by version; empty without a canary
    versions: dict[str, tuple[int, ...]]  # places by version, likewise
    missing: str


class Capability:
    """The match, with the memory that it needs to be fast and to give canaries their exact share. The verdict on each
    wish is kept while the abilities stay the same."""

    def __init__(self) -> None:
        self._fits: OrderedDict[_Wish, _Fit] = OrderedDict()
        self._seen: tuple[Ability, ...] = ()
        self._tenanted = False
        self._owed: dict[tuple[str, str], float] = {}  # requests owed to a version of a model

    def match(self, request: Request, replicas: Sequence[Replica]) -> Match:
        """The replicas that can serve it. Call it once per request: each call counts for the canary's share."""
        abilities = tuple([replica.ability for replica in replicas])
        if abilities != self._seen:
            self._seen, self._tenanted = abilities, any(ability.tenants for ability in abilities)
        tenant = request.tenant if self._tenanted else ""  # else each tenant would be a wish of its own
        wish = _Wish(request.model, request.version, request.precision, request.hardware, request.region, tenant)
        fit = self._fits.get(wish)
        if fit is None or (fit.abilities is not self._seen and fit.abilities != abilities):
            self._fits[wish] = fit = _fit(wish, self._seen)
            if len(self._fits) > _WISHES:
                self._fits.popitem(last=False)
        self._fits.move_to_end(wish)
        if fit.missing:
            return Match((), fit.missing)
        tokens = request.prompt_tokens + request.max_tokens
        short = tokens > fit.shortest
        places: Sequence[int] = fit.places
        if short:
            places = [place for place in places if (most := abilities[place].context) is None or most >= tokens]
            if not places:
                return Match((), f"the request needs a context of {tokens} tokens; the longest is {fit.longest:.0f}")
        if fit.shares and not request.version:
            places = self._thinned(fit, places, short, replicas)
        return Match(replicas if len(places) == len(replicas) else [replicas[place] for place in places])

    def _thinned(self, fit: _Fit, places: Sequence[int], short: bool, replicas: Sequence[Replica]) -> Sequence[int]:
        """Those of the version whose turn it is. Error diffusion: each version is owed its share of every request that
        could go to more than one, and the one that is owed most gets it. Closed replicas have no part in this: a
        canary that drains must not swallow its share."""
        versions = _by_version(places, fit.abilities) if short else fit.versions
        there = [
            version
            for version, its in versions.items()
            if any(replicas[place].weight > 0.0 and not replicas[place].draining for place in its)
        ]
        total = sum([fit.shares[version] for version in there])
        if len(there) < 2 or total <= 0.0:
            return places
        model = fit.abilities[places[0]].model
        for version in there:
            key = (model, version)
            self._owed[key] = self._owed.get(key, 0.0) + fit.shares[version] / total
        chosen = max(there, key=lambda version: self._owed[model, version])
        self._owed[model, chosen] -= 1.0
        return versions[chosen]


def _fit(wish: _Wish, abilities: tuple[Ability, ...]) -> _Fit:
    """Which of the abilities grant the wish, narrowing word by word so that the first that fails can be named."""
    places = list(range(len(abilities)))
    missing = "" if abilities else "there is no replica"
    said = ""
    for name, has in _FIELDS.items():
        wanted = getattr(wish, name)
        if missing or not wanted:
            continue
        left = [place for place in places if has(abilities[place]) in ("", wanted)]
        if not left:
            missing = f"no replica{said} serves {name} {wanted!r}; there is {_listed(places, abilities, has)}"
        said += f"{' and' if said else ' with'} {name} {wanted!r}"
        places = left
    if not missing:
        left = [place for place in places if not abilities[place].tenants or wish.tenant in abilities[place].tenants]
        if not left:
            missing = f"no replica{said} serves tenant {wish.tenant!r}"
        places = left
    found = [abilities[place] for place in places]
    contexts = [float("inf") if one.context is None else float(one.context) for one in found]
    return _Fit(
        abilities,
        tuple(places),
        min(contexts, default=0.0),
        max(contexts, default=0.0),
        shares := _shares(found),
        _by_version(places, abilities) if shares else {},
        missing,
    )


def _by_version(places: Sequence[int], abilities: Sequence[Ability]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for place in places:
        found.setdefault(abilities[place].version, []).append(place)
    return {version: tuple(its) for version, its in found.items()}


def _shares(abilities: Sequence[Ability]) -> dict[str, float]:
    """The share of traffic of each version, 0..1; empty when none is a canary. What the canaries leave is for the other
    versions, as many parts as they have replicas."""
    canaries = {one.version: one.canary for one in abilities if one.canary is not None}
    if not canaries:
        return {}
    stable = [one.version for one in abilities if one.version not in canaries]
    rest = max(0.0, 1.0 - sum(canaries.values()))
    shares = dict(canaries)
    for version in stable:
        shares[version] = shares.get(version, 0.0) + rest / len(stable)
    return shares


def _listed(places: Sequence[int], abilities: Sequence[Ability], has: Callable[[Ability], str]) -> str:
    names = sorted({has(abilities[place]) for place in places})
    return ", ".join(repr(name) for name in names[:8]) + (", ..." if len(names) > 8 else "")
