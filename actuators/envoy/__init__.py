"""Envoy: endpoint weights, breakers, gates, downgrades and tenants' caps, by xDS that Governor serves or by files."""

from actuators.envoy.actuator import Envoy
from actuators.envoy.config import EnvoyConfig, EnvoyPool, Files, Grpc

__all__ = ["Envoy", "EnvoyConfig", "EnvoyPool", "Files", "Grpc"]
