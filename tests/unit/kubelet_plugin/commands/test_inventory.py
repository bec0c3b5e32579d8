"""`carina inventory` on simulated nodes: most tests run it in this process, some as a program."""

import io
import json
import logging
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from unittest.mock import patch

import pytest
import yaml

from carina_dra.cli.command import run
from kubelet_plugin.commands.listed import INVENTORY
from simulation.nvml import SimulatedNode, installed
from simulation.nvml.device_files import links_seen_as_nodes

_NODE_NAME = {"CARINA_NODE_NAME": "node-1"}
_ALL = "--device-kinds=gpu,mig,share,monitor"


def inventory(node: SimulatedNode, *options: str, **environment: str) -> "CompletedProcess[str]":
    """Runs it in this process: a new one needs more than a second before it does anything."""
    arguments = ["inventory", f"--host-root={node.root}", *options]
    output, errors = io.StringIO(), io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    try:
        with (
            installed(node.directory),
            links_seen_as_nodes(),
            patch.dict(os.environ, _NODE_NAME | environment, clear=True),
            redirect_stdout(output),
            redirect_stderr(errors),
        ):
            status = run(arguments, {"inventory": INVENTORY})
    except SystemExit as ended:
        status = int(ended.code or 0)
    finally:
        root.handlers = handlers
        root.setLevel(level)
    return CompletedProcess(arguments, status, output.getvalue(), errors.getvalue())


def inventory_program(
    node: SimulatedNode, *options: str, **environment: str
) -> "CompletedProcess[str]":
    """Runs it as a program."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "simulation.nvml", "--node", node.directory),
            *("-m", "carina_dra", "inventory", f"--host-root={node.root}", *options),
        ],
        env=_NODE_NAME | environment,
        capture_output=True,
        text=True,
        check=False,
    )


_GPUS = ("gpu-0", "gpu-1", "gpu-3", "gpu-5")


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return SimulatedNode.create(tmp_path / "node", "mixed", name="node-1")


def test_table_shows_the_gpus_and_the_slices(node: SimulatedNode) -> None:
    done = inventory_program(node)

    assert (done.returncode, done.stderr) == (0, "")
    gpus, slices = done.stdout.split("\n\n")
    assert [line.split()[0] for line in gpus.splitlines()] == ["GPU", "0", "1", "3", "5"]
    assert "NVIDIA L40S" in gpus.splitlines()[1]
    assert [line.split(maxsplit=3) for line in slices.splitlines()[1:]] == [
        [
            "00000-gpu.carina.dev-node-1-*",
            "gpu.carina.dev",
            "node-1",
            "counter sets gpu-0, gpu-1, gpu-3, gpu-5",
        ],
        [
            "00001-gpu.carina.dev-node-1-*",
            "gpu.carina.dev",
            "node-1",
            "devices " + ", ".join(gpu + kind for kind in ("", "-monitor") for gpu in _GPUS),
        ],
    ]


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (["--device-kinds", "gpu"], {}),
        ([], {"CARINA_DEVICE_KINDS": "gpu"}),
        (["--driver-name", "gpu.nvidia.com"], {}),
    ],
    ids=["by a flag", "by the environment", "by the driver's name"],
)
def test_kinds_that_the_plugin_does_not_publish_are_left_out(
    node: SimulatedNode, options: list[str], environment: dict[str, str]
) -> None:
    done = inventory(node, *options, **environment)

    assert done.stdout.splitlines()[-1].endswith("devices gpu-0, gpu-1, gpu-3, gpu-5")


@pytest.mark.parametrize(
    ("options", "environment"),
    [(["--share-cores", "25"], {}), ([], {"CARINA_SHARE_CORES": "25"})],
    ids=["by a flag", "by the environment"],
)
def test_default_of_shares_is_that_of_the_plugin(
    node: SimulatedNode, options: list[str], environment: dict[str, str]
) -> None:
    document = json.loads(inventory(node, _ALL, "-o", "json", *options, **environment).stdout)

    devices = [d for s in document["resourceSlices"] for d in s["spec"].get("devices", ())]
    (share,) = (device for device in devices if device["name"] == "gpu-0-share")
    assert share["capacity"]["cores"]["requestPolicy"]["default"] == "25"


@pytest.mark.parametrize(
    ("options", "environment"),
    [(["--least-share", "1/7"], {}), ([], {"CARINA_LEAST_SHARE": "1/7"})],
    ids=["by a flag", "by the environment"],
)
def test_least_share_is_that_of_the_plugin(
    node: SimulatedNode, options: list[str], environment: dict[str, str]
) -> None:
    document = json.loads(inventory(node, _ALL, "-o", "json", *options, **environment).stdout)

    devices = [d for s in document["resourceSlices"] for d in s["spec"].get("devices", ())]
    (share,) = (device for device in devices if device["name"] == "gpu-0-share")
    assert share["attributes"]["leastShare"] == {"string": "1/7"}


def test_least_share_must_be_a_part_of_a_gpu(node: SimulatedNode) -> None:
    done = inventory(node, "--least-share", "7/1")

    assert done.returncode == 2
    assert "'7/1' must be a fraction from 1/1000 to 1" in done.stderr


@pytest.mark.parametrize("cores", ["0", "101", "ten"])
def test_default_of_shares_must_be_a_percentage(node: SimulatedNode, cores: str) -> None:
    done = inventory(node, "--share-cores", cores)

    assert done.returncode == 2
    assert f"'{cores}' must be a number from 1 to 100" in done.stderr


@pytest.mark.parametrize(
    ("options", "environment"),
    [(["--device-order", "spread"], {}), ([], {"CARINA_DEVICE_ORDER": "spread"})],
    ids=["by a flag", "by the environment"],
)
def test_order_of_devices_is_that_of_the_plugin_while_no_claim_uses_any(
    tmp_path: Path, options: list[str], environment: dict[str, str]
) -> None:
    node = SimulatedNode.create(tmp_path / "h100", "dgx-h100", name="node-1")

    document = json.loads(inventory(node, _ALL, "-o", "json", *options, **environment).stdout)

    names = [d["name"] for s in document["resourceSlices"] for d in s["spec"].get("devices", ())]
    smallest = [name for name in names if "-mig-1g10gb-19-" in name]
    assert smallest[:8] == [f"gpu-{minor}-mig-1g10gb-19-6" for minor in range(8)]


def test_unknown_order_of_devices_is_refused(node: SimulatedNode) -> None:
    done = inventory(node, "--device-order", "full")

    assert done.returncode == 2
    assert "'full' is not an order; write one of none, binpack, spread, frag" in done.stderr


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (["--host-memory-mib", "512", "--partition-types", "true"], {}),
        ([], {"CARINA_HOST_MEMORY_MIB": "512", "CARINA_PARTITION_TYPES": "1"}),
    ],
    ids=["by flags", "by the environment"],
)
def test_alpha_fields_are_those_that_the_plugin_would_publish(
    node: SimulatedNode, options: list[str], environment: dict[str, str]
) -> None:
    document = json.loads(inventory(node, "-o", "json", *options, **environment).stdout)

    of_devices = [s["spec"] for s in document["resourceSlices"] if "devices" in s["spec"]]
    assert of_devices[0]["partitionTypeAttribute"] == "gpu.carina.dev/partitionType"
    first = of_devices[0]["devices"][0]
    assert first["nodeAllocatableResources"] == {"memory": {"overhead": {"perPod": "512Mi"}}}


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (("--host-memory-mib", "1Gi"), "'1Gi' must be a number from 0 to 1048576"),
        (("--partition-types", "profile"), "'profile' must be true or false"),
    ],
)
def test_alpha_fields_that_the_plugin_would_refuse_are_refused(
    node: SimulatedNode, option: tuple[str, str], problem: str
) -> None:
    done = inventory(node, *option)

    assert done.returncode == 2
    assert problem in done.stderr


def test_unknown_kind_of_device_is_refused(node: SimulatedNode) -> None:
    done = inventory(node, "--device-kinds", "gpu,mug")

    assert done.returncode == 2
    assert "'mug' is not a kind of device; write some of gpu, mig, share, monitor" in done.stderr


def test_json_and_yaml_say_the_same(node: SimulatedNode) -> None:
    as_json = json.loads(inventory(node, "-o", "json").stdout)

    assert as_json == yaml.safe_load(inventory(node, "-o", "yaml").stdout)
    assert [each["minor"] for each in as_json["gpus"]] == [0, 1, 3, 5]
    assert as_json["gpus"][1]["nvlink"]["peers"] == [3]
    assert [each["kind"] for each in as_json["resourceSlices"]] == ["ResourceSlice"] * 2


def test_flags_go_before_the_settings_of_the_plugin_s_pod(node: SimulatedNode) -> None:
    done = inventory_program(node, "--node-name=flag", CARINA_DRIVER_NAME="gpu.example.com")

    assert "00000-gpu.example.com-flag-" in done.stdout


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_without_a_driver_it_says_so_and_ends_with_3(node: SimulatedNode, output: str) -> None:
    node.driver(available=False)

    done = inventory(node, "-o", output)

    assert done.returncode == 3
    assert "the NVIDIA kernel module is not loaded" in done.stderr
    if output == "json":
        assert json.loads(done.stdout)["gpus"] == []


def test_a_driver_that_does_not_work_ends_with_4(node: SimulatedNode) -> None:
    node.fail("nvmlInitWithFlags", 4)  # NVML_ERROR_NO_PERMISSION

    done = inventory_program(node)

    assert done.returncode == 4
    assert "NVML_ERROR_NO_PERMISSION" in done.stderr


def test_a_driver_without_a_gpu_ends_with_5(node: SimulatedNode) -> None:
    for minor in (0, 1, 3, 5):
        node.unplug(minor)

    done = inventory(node)

    assert done.returncode == 5
    assert "finds no GPU" in done.stderr


def test_a_gpu_that_cannot_be_read_is_reported(node: SimulatedNode) -> None:
    node.fail("nvmlDeviceGetMinorNumber", 999, minor=5)  # NVML_ERROR_UNKNOWN

    done = inventory(node)

    assert done.returncode == 0
    assert "cannot be read" in done.stderr


def test_gpus_are_shown_to_users_who_cannot_read_what_the_plugin_records(tmp_path: Path) -> None:
    node = SimulatedNode.create(tmp_path / "node", "dgx-h100", name="node-1")
    unreadable = tmp_path / "a-file"
    unreadable.touch()

    done = inventory(node, f"--kubelet-root={unreadable}")

    assert done.returncode == 0
    assert "NVIDIA H100" in done.stdout
    assert "Traceback" not in done.stderr
    assert "instances on its GPU are taken for an administrator's" in done.stderr
