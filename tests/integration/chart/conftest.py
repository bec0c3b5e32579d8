"""Helm with the chart, which needs no cluster to lint and to render."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.manifests import CHART, NAMESPACE, RELEASE

Render = Callable[..., list[dict[str, Any]]]


class HelmError(RuntimeError):
    """Helm failed; the message is its error output."""


def run_helm(helm: Path, *arguments: str | Path) -> str:
    """What a command of Helm prints. Raises HelmError."""
    done = subprocess.run([helm, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HelmError(f"helm {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return done.stdout


@pytest.fixture
def render(helm: Path, tmp_path: Path) -> Render:
    """Renders the chart with values and flags; gives its objects."""

    def rendered(values: dict[str, Any] | None = None, *flags: str) -> list[dict[str, Any]]:
        file = tmp_path / "values.yaml"
        file.write_text(json.dumps(values or {}))  # JSON is YAML
        given = (
            flags
            if any(flag.startswith("--namespace") for flag in flags)
            else (
                f"--namespace={NAMESPACE}",
                *flags,
            )
        )
        text = run_helm(helm, "template", RELEASE, CHART, "--values", file, *given)
        return [document for document in yaml.safe_load_all(text) if document]

    return rendered
