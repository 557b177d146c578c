"""Rig of ``kubernetes``: a fake API server over HTTP, for no real one runs here."""

from contextlib import ExitStack
from pathlib import Path

from actuators.kubernetes_scale import KubernetesScale, KubernetesScaleConfig
from controller.core.model import Lever
from controller.core.ports import Binding
from tests.actuators.rigs import Rig
from tests.support.decisions import replicas
from tests.support.kube import Trouble, fake_kube

A, B, C = replicas("a"), replicas("b"), replicas("c")
START = {A: 4.0, B: 6.0, C: 2.0}


def kubernetes_rig(folder: Path, stack: ExitStack) -> Rig:
    kube = stack.enter_context(fake_kube(folder))
    for target, value in START.items():
        kube.deploy(target.pool, int(value))
    config = KubernetesScaleConfig("prod", kubeconfig=kube.kubeconfig, timeout=0.3)
    return Rig(
        KubernetesScale(config, Binding(tuple(START), "governor")),
        KubernetesScale.describe(config)[Lever.REPLICAS],
        START,
        up=5,
        down=3,
        other=7,
        values=lambda: {t: float(kube.replicas(t.pool)) for t in START},
        touched=lambda: len(kube.writes),
        edit=lambda value: kube.set_scale(kube.objects["apps", "deployments", "prod", "a"], int(value), "kubectl"),
        fail=lambda: kube.trouble.append(Trouble("PUT", "/scale", 503)),
        refuse=lambda: kube.trouble.append(Trouble("PUT", "/scale", 403)),
        lose=lambda: kube.trouble.append(Trouble("PUT", "/scale", "lost")),
    )


RIGS = {"kubernetes": kubernetes_rig}
