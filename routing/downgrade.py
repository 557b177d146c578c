"""Downgrade: a share of requests goes to a smaller model, by consent of its tenant and class.

    P(pool i) = share_i          of the requests that fit its rule, as far as those before it left any

Rules for different pools add up, so that a controller may fill one pool and then the next; of the rules for one pool
the first that fits a request counts. A share is taken without chance, by tenant and class, so that each of them gives
its part and a rehearsal repeats: pool i takes share_i / (1 - shares before it) of what the pools before it left.
"""

from collections.abc import Iterable

from routing.knobs import Downgrade
from routing.model import Request
from routing.thinning import Thinner

EVERYBODY = "*"
NOTHING = 1e-9  # of the requests; what rounding leaves of a whole is nothing


def consents(rule: Downgrade, request: Request) -> bool:
    """Whether tenant and class of the request agree, and its prompt has a size that may go."""
    return (
        (EVERYBODY in rule.tenants or request.tenant in rule.tenants)
        and (EVERYBODY in rule.classes or request.klass in rule.classes)
        and (rule.longest_prompt is None or request.prompt_tokens <= rule.longest_prompt)
        and (rule.shortest_prompt is None or request.prompt_tokens >= rule.shortest_prompt)
    )


def pool_for(request: Request, rules: Iterable[Downgrade], thinner: Thinner) -> str:
    """The pool that it goes to instead; empty when it stays."""
    shares: dict[str, float] = {}
    for rule in rules:
        if rule.pool in shares or not consents(rule, request):
            continue
        rest = 1.0 - sum(shares.values())
        if rest <= NOTHING:
            break
        if thinner.take((request.klass, request.tenant, rule.pool), rule.share / rest):
            return rule.pool
        shares[rule.pool] = rule.share
    return ""
