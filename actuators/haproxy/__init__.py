"""HAProxy: by its admin socket, or as the agent that it asks."""

from actuators.haproxy.actuator import HAProxy
from actuators.haproxy.config import HAProxyConfig, HAProxyPool

__all__ = ["HAProxy", "HAProxyConfig", "HAProxyPool"]
