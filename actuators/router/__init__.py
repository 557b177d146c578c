"""Breakers by the membership of sglang-router and vllm-router."""

from actuators.router.actuator import Router
from actuators.router.config import RouterConfig, RouterPool

__all__ = ["Router", "RouterConfig", "RouterPool"]
