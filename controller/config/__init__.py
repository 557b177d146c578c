"""The config file: load it, and what the rest of the program derives from it."""

from controller.config.checks import without_actuator
from controller.config.errors import ConfigError, Problem
from controller.config.load import config_hash, load, loads
from controller.config.models import GovernorConfig, LeverConfig, ObjectiveConfig, PoolConfig
from controller.config.needs import pool_needs
from controller.config.plugins import Plugin
from controller.config.reach_checks import hints
from controller.config.schema import json_schema

__all__ = [
    "ConfigError",
    "GovernorConfig",
    "LeverConfig",
    "ObjectiveConfig",
    "Plugin",
    "PoolConfig",
    "Problem",
    "config_hash",
    "hints",
    "json_schema",
    "load",
    "loads",
    "pool_needs",
    "without_actuator",
]
