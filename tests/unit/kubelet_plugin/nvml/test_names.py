"""Names of MIG profiles, as `nvidia-smi` writes them."""

import pytest

from kubelet_plugin.nvml.names import mig_profile_name

A100_80GB, A100_40GB, H200 = 81920 * 2**20, 40960 * 2**20, 143771 * 2**20


@pytest.mark.parametrize(
    ("index", "slices", "memory_mib", "gpu_bytes", "name"),
    [
        (0x0, 1, 4864, A100_40GB, "1g.5gb"),
        (0x0, 1, 9728, A100_80GB, "1g.10gb"),
        (0x7, 1, 9728, A100_80GB, "1g.10gb+me"),
        (0x9, 1, 19968, A100_80GB, "1g.20gb"),
        (0x4, 7, 80896, A100_80GB, "7g.80gb"),
        (0x0, 1, 16384, H200, "1g.18gb"),
        (0x2, 3, 71168, H200, "3g.71gb"),
        (0xD, 1, 9728, A100_80GB, "1g.10gb-me"),
        (0xF, 1, 9728, A100_80GB, "1g.10gb+me.all"),
        (0xC, 4, 40192, A100_80GB, "4g.40gb+gfx"),
    ],
)
def test_a_profile_is_named_by_its_slices_its_memory_and_what_is_special(
    index: int, slices: int, memory_mib: int, gpu_bytes: int, name: str
) -> None:
    assert mig_profile_name(index, slices, memory_mib, gpu_bytes) == name
