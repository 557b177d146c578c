"""Downgrade: a share of requests goes to a smaller model, by consent of its tenant and class.

The first rule that fits a request decides. Its share is taken without chance, by tenant and class, so that each of them
gives its part and a rehearsal repeats.
"""

from collections.abc import Iterable

from routing.knobs import Downgrade
from routing.model import Request
from routing.thinning import Thinner

EVERYBODY = "*"


def consents(rule: Downgrade, request: Request) -> bool:
    """Whether tenant and class of the request agree, and its prompt is short enough for the smaller model."""
    return (
        (EVERYBODY in rule.tenants or request.tenant in rule.tenants)
        and (EVERYBODY in rule.classes or request.klass in rule.classes)
        and (rule.longest_prompt is None or request.prompt_tokens <= rule.longest_prompt)
    )


def pool_for(request: Request, rules: Iterable[Downgrade], thinner: Thinner) -> str:
    """The pool that it goes to instead; empty when it stays."""
    for rule in rules:
        if consents(rule, request):
            return rule.pool if thinner.take((request.klass, request.tenant), rule.share) else ""
    return ""
