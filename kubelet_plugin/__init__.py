"""The node plugin: GPUs through NVML, ResourceSlices, prepared claims, CDI specs, the kubelet's gRPC interfaces."""
