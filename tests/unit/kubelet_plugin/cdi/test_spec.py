"""The rules of the CDI format, and the document as it is written."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet_plugin.cdi.spec import (
    CdiDevice,
    CdiSpec,
    CdiSpecError,
    ContainerEdits,
    DeviceNode,
    Hook,
    Mount,
    render_spec,
)

NODE = DeviceNode("/dev/nvidia0", "/host/dev/nvidia0")
SOMETHING = ContainerEdits(env=("A=b",))


def spec(kind: str = "gpu.carina.dev/claim") -> CdiSpec:
    return CdiSpec(kind, (CdiDevice("gpu-0", SOMETHING),), ContainerEdits())


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("gpu.carina.dev/claim", "0.5.0"),
        ("vendor/class", "0.5.0"),
        ("gpu.carina.dev/claim.v1", "0.6.0"),
    ],
)
def test_the_version_is_the_oldest_that_will_do(kind: str, version: str) -> None:
    assert spec(kind).version == version


@pytest.mark.parametrize(
    "kind", ["", "claim", "/claim", "a/", "1gpu.dev/claim", "a_/claim", "a/b/c", "a/" + "b" * 64]
)
def test_a_kind_is_a_vendor_and_a_class(kind: str) -> None:
    with pytest.raises(CdiSpecError, match="vendor/class"):
        spec(kind)


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "a/b", "a=b", "é", "a\n", ".", "a:"])
def test_a_device_name_begins_and_ends_with_a_letter_or_digit(name: str) -> None:
    with pytest.raises(CdiSpecError, match="CDI device name"):
        CdiDevice(name, SOMETHING)


@given(st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.:-]{0,40}[A-Za-z0-9])?", fullmatch=True))
def test_every_name_that_the_format_allows_is_taken(name: str) -> None:
    assert CdiDevice(name, SOMETHING).name == name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CdiDevice("gpu-0", ContainerEdits()), "adds nothing"),
        (lambda: CdiSpec("a/b", (), ContainerEdits()), "has no device"),
        (lambda: CdiSpec("a/b", spec().devices * 2, ContainerEdits()), "gpu-0 occurs twice"),
        (lambda: ContainerEdits(env=("=b",)), "NAME=value"),
        (lambda: ContainerEdits(env=("A",)), "NAME=value"),
        (lambda: ContainerEdits(env=("A-B=c",)), "NAME=value"),
        (lambda: ContainerEdits(env=("A=1", "A=2")), "variable A occurs twice"),
        (lambda: ContainerEdits(device_nodes=(NODE, NODE)), "/dev/nvidia0 occurs twice"),
        (lambda: ContainerEdits(mounts=(Mount("/a", "/c"), Mount("/b", "/c"))), "/c occurs twice"),
        (lambda: DeviceNode("dev/nvidia0", "/dev/nvidia0"), "path of a device node"),
        (lambda: DeviceNode("/dev/nvidia0", "nvidia0"), "hostPath of a device node"),
        (lambda: DeviceNode("/dev/nvidia0", "/dev/nvidia0", "x"), "permissions 'x'"),
        (lambda: DeviceNode("/dev/nvidia0", "/dev/nvidia0", ""), "permissions ''"),
        (lambda: Mount("a", "/a"), "hostPath of a mount"),
        (lambda: Mount("/a", "a"), "containerPath of a mount"),
        (lambda: Mount("/a\0", "/a"), "hostPath of a mount"),
        (lambda: Hook("createContainer", "hook", ("hook",)), "path of a hook"),
    ],
)
def test_what_no_runtime_would_take_cannot_be_made(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(CdiSpecError, match=message):
        make()


def test_the_document_has_the_fields_of_the_format() -> None:
    edits = ContainerEdits(
        env=("A=b",),
        device_nodes=(NODE,),
        mounts=(Mount("/host/lib.so", "/lib.so", ("ro",)),),
        hooks=(Hook("createContainer", "/usr/bin/hook", ("hook", "run")),),
    )
    device = CdiDevice("gpu-0", ContainerEdits(device_nodes=(NODE,)))
    assert json.loads(render_spec(CdiSpec("gpu.carina.dev/claim", (device,), edits))) == {
        "cdiVersion": "0.5.0",
        "kind": "gpu.carina.dev/claim",
        "devices": [
            {
                "name": "gpu-0",
                "containerEdits": {
                    "deviceNodes": [
                        {
                            "path": "/dev/nvidia0",
                            "hostPath": "/host/dev/nvidia0",
                            "permissions": "rw",
                        }
                    ]
                },
            }
        ],
        "containerEdits": {
            "env": ["A=b"],
            "deviceNodes": [
                {"path": "/dev/nvidia0", "hostPath": "/host/dev/nvidia0", "permissions": "rw"}
            ],
            "mounts": [{"hostPath": "/host/lib.so", "containerPath": "/lib.so", "options": ["ro"]}],
            "hooks": [
                {"hookName": "createContainer", "path": "/usr/bin/hook", "args": ["hook", "run"]}
            ],
        },
    }
