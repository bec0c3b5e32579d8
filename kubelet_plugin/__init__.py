"""The node plugin: GPUs through NVML, ResourceSlices, prepared claims, CDI, the kubelet's gRPC."""
