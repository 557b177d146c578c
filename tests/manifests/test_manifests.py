"""Disasters of a deployment that applies cleanly and then does not work: names that point nowhere, rights that are
missing or too many, a config that the daemon refuses, a pod that the admission refuses."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from actuators.kubernetes_scale import KubernetesScale, KubernetesScaleConfig
from controller.config import load, without_actuator
from controller.core.model import Outcome
from controller.core.ports import Binding
from tests.support.decisions import decide, replicas
from tests.support.kube import Call, FakeKube, fake_kube

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
FOLDERS = sorted(path.parent for path in MANIFESTS.rglob("kustomization.yaml"))
NAMESPACE = "inference-governor"


@cache
def documents(path: Path) -> tuple[dict[str, Any], ...]:
    return tuple(yaml.safe_load_all(path.read_text()))


@cache
def base() -> dict[tuple[str, str], dict[str, Any]]:
    """The objects of base by kind and name."""
    return {
        (doc["kind"], doc["metadata"]["name"]): doc
        for path in sorted((MANIFESTS / "base").glob("*.yaml"))
        if path.name not in ("kustomization.yaml", "governor.yaml")
        for doc in documents(path)
    }


def deployment() -> dict[str, Any]:
    return base()["Deployment", "governor"]


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = deployment()["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    (only,) = pod()["containers"]
    return dict(only)


def rules(folder: str) -> list[dict[str, Any]]:
    (role,) = [d for d in documents(MANIFESTS / folder / "rbac.yaml") if d["kind"] == "ClusterRole"]
    return list(role["rules"])


def granted(folder: str) -> set[Call]:
    return {
        Call(verb, group, resource)
        for rule in rules(folder)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


# --- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_no_file_is_forgotten_and_none_is_missing(folder: Path) -> None:
    (kustomization,) = documents(folder / "kustomization.yaml")
    named = {*kustomization.get("resources", []), *kustomization.get("components", [])}
    named |= {patch["path"] for patch in kustomization.get("patches", [])}
    named |= {file for made in kustomization.get("configMapGenerator", []) for file in made["files"]}
    assert {name for name in named if not (folder / name).exists()} == set()
    assert {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"} == {n for n in named if "/" not in n}


@pytest.mark.parametrize("doc", base().values(), ids=lambda doc: f"{doc['kind']}-{doc['metadata']['name']}")
def test_no_field_is_misspelt(doc: dict[str, Any]) -> None:
    model = getattr(client, "V1" + doc["kind"])
    with client.ApiClient() as api:
        known = api.sanitize_for_serialization(model.from_dict(doc))
    assert list(lost(doc, known)) == []


def lost(written: object, known: object, where: str = "") -> Iterator[str]:
    """What of `written` the API does not know."""
    if isinstance(written, Mapping) and isinstance(known, Mapping):
        for key, value in written.items():
            if key in known:
                yield from lost(value, known[key], f"{where}.{key}")
            else:
                yield f"{where}.{key}"
    elif isinstance(written, list) and isinstance(known, list):
        for index, (one, other) in enumerate(zip(written, known, strict=True)):
            yield from lost(one, other, f"{where}[{index}]")
    elif written != known:
        yield f"{where}: {written!r} became {known!r}"


def test_a_misspelt_field_would_be_found() -> None:
    assert list(lost({"spec": {"replica": 1}}, {"spec": {}})) == [".spec.replica"]


def test_patches_meet_what_they_patch() -> None:
    for path in (MANIFESTS / "overlays" / "dry-run").glob("*.yaml"):
        if path.name != "kustomization.yaml":
            (doc,) = documents(path)
            target = base()[doc["kind"], doc["metadata"]["name"]]
            assert doc["metadata"].get("namespace") == target["metadata"].get("namespace")
            assert doc["apiVersion"] == target["apiVersion"]


# --- names -------------------------------------------------------------------------------------------------------


def test_every_name_in_the_pod_refers_to_something() -> None:
    (kustomization,) = documents(MANIFESTS / "base" / "kustomization.yaml")
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert ("ServiceAccount", pod()["serviceAccountName"]) in base()
    assert ("PersistentVolumeClaim", volumes["ledger"]["persistentVolumeClaim"]["claimName"]) in base()
    assert volumes["config"]["configMap"]["name"] in {m["name"] for m in kustomization["configMapGenerator"]}
    assert container()["image"] in {image["name"] for image in kustomization["images"]}
    assert {mount["name"] for mount in container()["volumeMounts"]} == set(volumes)
    ports = {port["name"] for port in container()["ports"]}
    assert {
        container()[probe]["httpGet"]["port"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")
    } == ports
    assert {port["targetPort"] for port in base()["Service", "governor"]["spec"]["ports"]} == ports


def test_every_selector_selects_the_pod() -> None:
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    (monitor,) = documents(MANIFESTS / "components" / "pod-monitor" / "podmonitor.yaml")
    for selector in (
        deployment()["spec"]["selector"]["matchLabels"],
        base()["Service", "governor"]["spec"]["selector"],
        base()["NetworkPolicy", "governor"]["spec"]["podSelector"]["matchLabels"],
        monitor["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
        assert selector


def test_everything_lives_in_our_namespace_but_the_rights_in_the_workloads() -> None:
    for (kind, _), doc in base().items():
        expected = {"Namespace": None, "ClusterRole": None, "RoleBinding": "default"}.get(kind, NAMESPACE)
        assert doc["metadata"].get("namespace") == expected
    binding = base()["RoleBinding", "governor-scale"]
    assert ("ClusterRole", binding["roleRef"]["name"]) in base()
    (subject,) = binding["subjects"]
    assert (subject["kind"], subject["name"], subject["namespace"]) == ("ServiceAccount", "governor", NAMESPACE)


def test_no_right_is_given_in_the_whole_cluster() -> None:
    assert not [kind for kind, _ in base() if kind == "ClusterRoleBinding"]


# --- config ------------------------------------------------------------------------------------------------------


def test_the_shipped_config_is_accepted_and_fits_the_pod() -> None:
    config = load(MANIFESTS / "base" / "governor.yaml")
    assert without_actuator(config) == ()
    host, _, port = config.http.listen.rpartition(":")
    assert (host, int(port)) == ("0.0.0.0", container()["ports"][0]["containerPort"])
    mounts = {mount["mountPath"]: mount for mount in container()["volumeMounts"]}
    assert "subPath" not in mounts["/etc/governor"]  # an edit would never arrive
    writable = [Path(path) for path, mount in mounts.items() if not mount.get("readOnly")]
    assert any(folder in Path(config.ledger.path).parents for folder in writable)
    assert Path(container()["args"][2]) == Path("/etc/governor/governor.yaml")
    bound = {doc["metadata"]["namespace"] for (kind, _), doc in base().items() if kind == "RoleBinding"}
    namespaces = {
        lever.actuator.settings.namespace
        for p in config.pools.values()
        for lever in p.levers.values()
        if lever.actuator
    }
    assert namespaces <= bound


@pytest.mark.parametrize("overlay", ["base", "overlays/dry-run"])
def test_the_command_line_of_the_pod_is_understood(overlay: str, tmp_path: Path) -> None:
    (doc,) = documents(MANIFESTS / overlay / "deployment.yaml")
    (main,) = doc["spec"]["template"]["spec"]["containers"]
    missing = str(tmp_path / "governor.yaml")
    args = [missing if arg == "/etc/governor/governor.yaml" else arg for arg in main["args"]]
    assert missing in args
    command = [sys.executable, "-c", "from controller.cli import main; main()", *args]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 2
    said = done.stdout + done.stderr
    assert "No such option" not in said
    assert "governor.yaml" in said.replace("\n", "")


def test_a_rehearsal_is_a_rehearsal() -> None:
    (doc,) = documents(MANIFESTS / "overlays" / "dry-run" / "deployment.yaml")
    (main,) = doc["spec"]["template"]["spec"]["containers"]
    assert main["args"] == [*container()["args"], "--dry-run"]
    assert main["name"] == container()["name"]


# --- rights ------------------------------------------------------------------------------------------------------


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[FakeKube]:
    with fake_kube(tmp_path) as kube:
        kube.lists["scaledobjects"] = []
        kube.deploy("llama", 4)
        kube.deploy("qwen", 2, plural="statefulsets")
        yield kube


def exercise(kube: FakeKube) -> list[Outcome]:
    """Everything the actuator does in its life, on both kinds."""
    outcomes = []
    for name, kind in (("llama", "Deployment"), ("qwen", "StatefulSet")):
        target = replicas(name)
        config = KubernetesScaleConfig("prod", name, kind, kubeconfig=kube.kubeconfig)
        hands = KubernetesScale(config, Binding((target,)))
        state = hands.read([target], 1.0)[target]
        assert state.error == ""
        assert state.accepted is not None
        decision = decide(target, state.accepted, state.accepted + 1)
        outcomes += [a.outcome for a in hands.apply([decision], 1.0)]
        outcomes += [a.outcome for a in hands.verify([decision], 1.0)]
        hands.close()
    return outcomes


def test_the_rights_are_what_the_actuator_uses_no_less_and_no_more(kube: FakeKube) -> None:
    kube.rules = rules("base")
    assert set(exercise(kube)) == {Outcome.DONE}
    assert set(kube.calls) == granted("base")


def test_a_drain_may_point_out_pods_and_no_more(kube: FakeKube) -> None:
    kube.pods.append({"metadata": {"name": "llama-x", "namespace": "prod", "labels": {"app": "llama"}}})
    target = replicas("llama")
    hands = KubernetesScale(
        KubernetesScaleConfig("prod", "llama", kubeconfig=kube.kubeconfig), Binding((target,))
    )  # fmt: skip
    lower = decide(target, 4, 3)._replace(leaving=("llama-x",))

    kube.rules = rules("base")
    (without,) = hands.apply([lower], 1.0)
    assert (without.outcome, kube.replicas("llama")) == (Outcome.REFUSED, 4)
    assert "see manifests/components/drain for the rights" in without.detail
    kube.rules = [*rules("base"), *rules("components/drain")]
    assert [a.outcome for a in hands.apply([lower], 2.0)] == [Outcome.DONE]
    assert {call for call in kube.calls if call.verb == "patch"} == granted("components/drain")
    hands.close()


def test_a_rehearsal_reads_everything_and_could_not_write_if_it_tried(kube: FakeKube) -> None:
    kube.rules = rules("overlays/dry-run")
    assert exercise(kube) == [Outcome.REFUSED, Outcome.FAILED] * 2
    assert granted("overlays/dry-run") == {call for call in granted("base") if call.verb != "update"}
    assert kube.writes == []


# --- hardening ---------------------------------------------------------------------------------------------------


def test_the_pod_passes_the_restricted_standard_that_its_namespace_enforces() -> None:
    assert base()["Namespace", NAMESPACE]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["securityContext"]["runAsUser"] > 0
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = container()["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod())
    assert not [volume for volume in pod()["volumes"] if "hostPath" in volume]
    assert {"requests", "limits"} <= set(container()["resources"])


def test_two_governors_never_act_at_once() -> None:
    assert deployment()["spec"]["replicas"] == 1
    assert deployment()["spec"]["strategy"] == {"type": "Recreate"}


def test_the_image_runs_as_the_user_that_the_pod_asks_for() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    user = f"{pod()['securityContext']['runAsUser']}:{pod()['securityContext']['runAsGroup']}"
    assert [line for line in lines if line.startswith("USER ")] == [f"USER {user}"]
    assert 'ENTRYPOINT ["governor"]' in lines


def test_the_image_is_made_of_pinned_requirements_that_exist() -> None:
    text = (ROOT / "Dockerfile").read_text()
    installs = [line for line in text.splitlines() if "pip install" in line]
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    for lock in ("requirements.lock", "requirements-run.lock"):
        assert lock in text
        assert (ROOT / lock).exists()


def test_what_the_image_is_built_from_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {"pyproject.toml", "README.md", "LICENSE", "requirements.lock", "requirements-run.lock"} <= kept
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"benchmarks", "tests"}
    assert packages <= kept
    assert all((ROOT / name).exists() for name in kept), os.listdir(ROOT)
