"""Shows Carina at work, on a machine with Python alone or on a real Kubernetes.

The kubelet plugin is real, one process per node. Small stand-ins take the place of the other
components. Everything that the demo shows is checked; a failed check ends it with an error.

    console            printing and checking
    manifests          the manifests of deploy/
    wait               waiting for other processes
    gpu_node           a simulated node, and the plugin's process on it
    scheduler          stands in for kube-scheduler
    claim_controller   stands in for the controllers that manage claims of templates
    kubelet            stands in for the kubelet
    container_runtime  stands in for containerd: applies CDI devices to containers
    expected_devices   the devices that containers should see
    embedded           the demo on simulated nodes and the embedded API
    real_cluster       the demo on a real Kubernetes
"""
