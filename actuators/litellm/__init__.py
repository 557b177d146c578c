"""LiteLLM's proxy (kind ``litellm``): by a plugin that runs inside it, or by the management API of its database.

``governor_litellm.py`` is that plugin. It is copied to where LiteLLM runs and imports nothing of Governor; nothing here
imports it.
"""

from actuators.litellm.actuator import LiteLLM
from actuators.litellm.config import LiteLLMConfig, LiteLLMPool

__all__ = ["LiteLLM", "LiteLLMConfig", "LiteLLMPool"]
