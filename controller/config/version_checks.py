"""Checks of what goes by versions: the guard and the law must mean the same share of a fleet."""

from collections.abc import Iterator

from controller.config.errors import Finding, Path
from controller.config.levers import ONE_VERSION
from controller.config.models import LeverConfig, PoolConfig
from controller.core.model import Lever


def check_versions(at: Path, lever: Lever, pool: PoolConfig, settings: LeverConfig) -> Iterator[Finding]:
    """A bad version goes out up to the smaller of what its law asks for and what its guard grants, so that a larger one
    that somebody wrote does nothing."""
    if lever is not Lever.BREAKER or not pool.labels.version:
        return
    group, share = settings.version_group, getattr(settings.policy.settings, "version_share", None)
    if group < settings.group and group != ONE_VERSION:
        yield Finding(
            (*at, "version_group"),
            f"{group:.0%} of one version are fewer than the {settings.group:.0%} that may be out of any",
            f"write at least {settings.group:.0%}, or lower group",
            ((*at, "group"),),
        )
    if share and share != group and max(share, group) != ONE_VERSION:
        yield Finding(
            (*at, "version_group"),
            f"it is {group:.0%} and version_share of the policy {share:.0%}, and the smaller one counts",
            "write the same in both",
            ((*at, "policy", "version_share"),),
        )
