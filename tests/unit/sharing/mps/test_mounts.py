"""Whether containers see what is mounted for an MPS daemon."""

from pathlib import Path

import pytest

from sharing.mps.mounts import reaches_host

ROOT = "23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
FOLDER = Path("/var/lib/kubelet/plugins/gpu.carina.dev")
PRIVATE = f"90 23 254:0 /kubelet {FOLDER} rw - ext4 /dev/vda rw\n"
SHARED = f"90 23 254:0 /kubelet {FOLDER} rw shared:7 - ext4 /dev/vda rw\n"
SLAVE = f"90 23 254:0 /kubelet {FOLDER} rw master:7 - ext4 /dev/vda rw\n"
BOTH = f"90 23 254:0 /kubelet {FOLDER} rw shared:9 master:7 - ext4 /dev/vda rw\n"


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        (ROOT, True),  # no container
        (ROOT + SHARED, True),
        (ROOT + BOTH, True),
        (ROOT + PRIVATE, False),
        (ROOT + SLAVE, False),
        (ROOT + SHARED + PRIVATE, False),  # one over the other
        (ROOT + "91 23 0:9 / /var/lib/kube\\040let rw - tmpfs tmpfs rw\n", True),
    ],
)
def test_only_shared_mounts_of_a_container_reach_the_host(mounts: str, expected: bool) -> None:
    assert reaches_host(mounts, FOLDER) is expected


def test_a_folder_below_a_mount_is_of_that_mount() -> None:
    assert not reaches_host(ROOT + PRIVATE, FOLDER / "mps")
