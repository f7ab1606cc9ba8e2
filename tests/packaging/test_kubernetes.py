"""The files for Kubernetes are valid by its schema, and agree with Spark's names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

import state_store


@pytest.fixture
def directory(checkout: Path) -> Path:
    return checkout / "conf" / "kubernetes"


def template(path: Path) -> dict[str, Any]:
    """Return the pod of a template as Spark completes it: with an image."""
    pod: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    for container in pod["spec"]["containers"]:
        container["image"] = "spark-with-state-store"
    return pod


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_templates_are_valid(directory: Path, role: str) -> None:
    pod = template(directory / f"{role}.yaml")
    kubernetes_validate.validate(pod, "1.33", strict=True)
    (container,) = pod["spec"]["containers"]
    assert container["name"] == f"spark-kubernetes-{role}", "Spark looks for its container by this name"
    volumes = {volume["name"] for volume in pod["spec"].get("volumes", ())}
    assert {mount["name"] for mount in container.get("volumeMounts", ())} == volumes
    assert all(name.startswith("spark-local-dir-") for name in volumes)


def test_a_template_with_a_misspelt_field_is_found(directory: Path) -> None:
    pod = template(directory / "executor.yaml")
    pod["spec"]["volumes"][0]["emptyDirectory"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, "1.33", strict=True)


def test_the_configuration_names_the_templates(directory: Path, checkout: Path) -> None:
    text = (directory / "spark.conf").read_text("utf-8")
    for role in ("driver", "executor"):
        (path,) = re.findall(rf"^spark\.kubernetes\.{role}\.podTemplateFile +(\S+)$", text, re.MULTILINE)
        assert (checkout / path).is_file()


def test_the_image_takes_what_the_build_makes(directory: Path, checkout: Path) -> None:
    text = (directory / "Dockerfile").read_text("utf-8")
    assert "COPY dist/*.whl" in text and "dist" in (checkout / "Makefile").read_text("utf-8")
    (called,) = re.findall(r"state_store\.(\w+)\(", text)
    assert callable(getattr(state_store, called))
    (user,) = re.findall(r"^USER (\d+)$", text, re.MULTILINE)
    for role in ("driver", "executor"):
        assert template(directory / f"{role}.yaml")["spec"]["securityContext"]["runAsUser"] == int(user)
