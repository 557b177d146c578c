"""Token buckets, set-points and shares in Redis (kind ``redis``), and the user keys of AIBrix (kind ``aibrix``)."""

from actuators.redis.actuator import Redis, RedisConfig

__all__ = ["Redis", "RedisConfig"]
