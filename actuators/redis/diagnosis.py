"""What is wrong with a Redis, before it hurts; nothing is written."""

from collections.abc import Sequence

from actuators.redis.schema import Keys
from actuators.redis.server import NoAnswer, RedisServer, Server, words
from controller.core.model import Target
from controller.core.ports import Finding

_COMMANDS = ("HSET", "HMGET", "HGET", "GET", "DEL", "INCR", "PEXPIRE", "PEXPIREAT", "PERSIST")


def diagnose(
    config: RedisServer, server: Server, keys: Keys, targets: Sequence[Target], identity: str
) -> Sequence[Finding]:
    """Reachability, role, eviction, rights, and who else wrote."""
    where = config.shown
    probe = keys.generation("doctor")
    asks = [("EVAL", f"return redis.acl_check_cmd('{command}', KEYS[1])", 1, probe) for command in _COMMANDS]
    try:
        info, *may = server.ask(("INFO",), *asks)
        owners = server.ask(*(("HGET", keys.target(target), "by") for target in targets)) if targets else []
    except NoAnswer as error:
        return (Finding("error", where, str(error)),)
    found = []
    if isinstance(info, Exception):
        found.append(
            Finding("warning", where, f"{words(info)}; without INFO a restart is told by its generations alone")
        )
    else:
        found += _told(where, dict(line.split(":", 1) for line in info.splitlines() if ":" in line))
    denied = [c for c, one in zip(_COMMANDS, may, strict=True) if one in (0, None)]
    first = next((one for one in may if isinstance(one, Exception)), None)
    if first is not None and "acl_check_cmd" not in str(first):  # Redis before 7 cannot be asked
        found.append(Finding("error", where, words(first)))
    if denied:
        found.append(
            Finding("error", where, f"the user may not {', '.join(denied)} on {probe}; see docs/actuators/redis.md")
        )
    for target, by in zip(targets, owners, strict=True):
        if isinstance(by, str) and by != identity:
            found.append(Finding("warning", str(target), f"was written by {by}; one of you should let go of it"))
    return tuple(found)


def _told(where: str, info: dict[str, str]) -> list[Finding]:
    found = []
    if info.get("role") == "slave":
        found.append(Finding("error", where, "is a replica and takes no writes; give the address of the primary"))
    if info.get("cluster_enabled") == "1":
        found.append(Finding("error", where, "is part of a cluster, which is not supported; give a single primary"))
    if int(info.get("redis_version", "7").split(".")[0]) < 5:
        found.append(Finding("error", where, "is older than Redis 5, whose scripts may not ask for the time"))
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and info.get("maxmemory", "0") != "0":
        found.append(Finding("warning", where, f"evicts by {policy} when it is full, also caps; set noeviction"))
    return found
