"""Token buckets, set-points and shares in Redis (kind ``redis``), and the users of AIBrix (kind ``aibrix``)."""

from actuators.redis.actuator import Redis, RedisConfig
from actuators.redis.aibrix import Aibrix, AibrixConfig

__all__ = ["Aibrix", "AibrixConfig", "Redis", "RedisConfig"]
