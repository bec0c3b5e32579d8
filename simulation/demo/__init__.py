"""Shows Carina at work, on a machine with Python alone or on a real Kubernetes.

The kubelet plugin is the real one, a process for each node; what stands in for the rest is small,
and says so. Whatever is shown is checked: a wrong thing ends the demo with a failure.

    console            what is printed, and what is checked
    manifests          the objects of deploy/
    wait               waiting for what other processes do
    gpu_node           a simulated node, and the plugin's process on it
    scheduler          in the role of kube-scheduler
    claim_controller   in the role of the controller that makes claims from templates
    kubelet            in the role of the kubelet
    container_runtime  in the role of containerd: from CDI names to what a container has
    expected_devices   what containers are to see
    embedded           the story on simulated nodes and the embedded API
    real_cluster       the story on a real Kubernetes
"""
