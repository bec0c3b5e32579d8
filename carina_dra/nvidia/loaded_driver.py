"""What the kernel says of the loaded NVIDIA driver."""

from pathlib import Path


def gpu_addresses(host_root: Path) -> frozenset[str] | None:
    """Returns the PCI addresses of the GPUs bound to the NVIDIA kernel driver, or None.

    The list is cheap to read and changes with hot-plug. NVML's list is that of nvmlInit. None
    means that the list cannot be read.
    """
    try:
        return frozenset(gpu.name for gpu in (host_root / "proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return None
