"""Makes a MIG instance on the first GPU and is killed: a process for a test to run."""

import os
import signal

import pynvml

pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
pynvml.nvmlDeviceSetMigMode(gpu, 1)
pynvml.nvmlDeviceCreateGpuInstance(gpu, 19)
os.kill(os.getpid(), signal.SIGKILL)
