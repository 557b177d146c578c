"""The gate by the busy thresholds of NVIDIA Dynamo's frontends."""

from actuators.dynamo.actuator import Dynamo
from actuators.dynamo.config import DynamoConfig, DynamoPool

__all__ = ["Dynamo", "DynamoConfig", "DynamoPool"]
