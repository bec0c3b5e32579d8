"""CUDA's driver API, simulated on a simulated node: it counts memory, and kernels take time.

`install` puts a `SimulatedCuda` where `gpu_proof.cuda` keeps the loaded libcuda. Processes that use
it are on the simulated GPU with the memory that they allocate, and limits that were set with NVML
or of an MPS daemon hold for them, unless a fault says otherwise.
"""

from simulation.cuda.library import CudaFault, SimulatedCuda, install, set_faults

__all__ = ["CudaFault", "SimulatedCuda", "install", "set_faults"]
