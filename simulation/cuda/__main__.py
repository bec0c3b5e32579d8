"""Runs a program on a simulated node with a simulated CUDA.

python -m simulation.cuda --node DIR -m gpu_proof ARGUMENTS...
"""

import runpy
import sys
from pathlib import Path

from simulation.cuda.library import install
from simulation.nvml.device_files import links_seen_as_nodes
from simulation.nvml.installation import installed

match sys.argv[1:]:
    case ["--node", directory, "-m", module, *rest]:
        with installed(Path(directory)), links_seen_as_nodes():
            install(Path(directory))
            sys.argv = [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    case _:
        sys.exit("usage: python -m simulation.cuda --node DIR -m MODULE ...")
