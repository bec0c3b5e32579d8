"""How much of a production cluster is given out: Alibaba's trace, through the engine.

The files are from the trace `cluster-trace-gpu-v2023` and from the results of the paper "Beware of
Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC
2023; repository hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0): counts, sizes, percentages.
"""
