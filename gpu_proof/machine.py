"""What the machine is, for the report."""

import importlib.metadata
import os
import platform
from collections.abc import Iterator

from gpu_proof import cuda
from gpu_proof.bench import MIB
from gpu_proof.finding import Fact
from kubelet_plugin.inventory.gpu import ObservedGpu


def machine_facts(gpu: ObservedGpu | str, *, cgroups: bool) -> Iterator[Fact]:
    """Yields what the machine is; the GPU, or why there is none."""
    yield Fact("carina", "Carina", importlib.metadata.version("carina-dra"))
    yield Fact("kernel", "Kernel", f"{platform.release()} {platform.machine()}")
    yield Fact("python", "Python", platform.python_version())
    yield Fact("user", "Runs as", "root" if os.geteuid() == 0 else f"UID {os.geteuid()}")
    yield Fact("cgroups", "cgroup v2", "writable" if cgroups else "not writable")
    yield Fact("cuda", "Newest CUDA of the driver", _cuda())
    if isinstance(gpu, str):
        yield Fact("gpu", "GPU", f"none: {gpu}")
        return
    facts = gpu.gpu
    yield Fact("driver", "Driver", str(facts.driver_version))
    memory = (facts.memory_bytes or 0) // MIB
    yield Fact("gpu", "GPU", f"{facts.product_name}, {facts.uuid}, {memory} MiB")
    major, minor = facts.cuda_compute_capability or (0, 0)
    yield Fact("compute-capability", "Compute capability", f"{major}.{minor}")
    yield Fact("compute-mode", "Compute mode", facts_mode(gpu))


def facts_mode(gpu: ObservedGpu) -> str:
    """The compute mode and the MIG mode, which are left as they are."""
    return f"{gpu.state.compute_mode.value}, MIG {gpu.state.mig_mode.value}"


def _cuda() -> str:
    try:
        return cuda.driver_version()
    except OSError as error:
        return f"none: {error}"
    except cuda.CudaError as error:
        return str(error)
