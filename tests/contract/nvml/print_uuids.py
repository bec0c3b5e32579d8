"""Prints the UUIDs of the GPUs that answer: a process for a test to run."""

import sys

import pynvml

pynvml.nvmlInit()
for index in range(pynvml.nvmlDeviceGetCount()):
    try:
        print(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)))
    except pynvml.NVMLError_GpuIsLost:
        print("lost", *sys.argv[1:])
