"""The Kubernetes scale actuator."""

from actuators.kubernetes_scale.actuator import KubernetesScale, KubernetesScaleConfig

__all__ = ["KubernetesScale", "KubernetesScaleConfig"]
