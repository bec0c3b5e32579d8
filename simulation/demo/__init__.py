"""Shows Carina at work, on a machine with Python alone or on a real Kubernetes.

The controller and the kubelet plugin, one process per node, are real. Small stand-ins take the
place of the other components. Everything that the demo shows is checked; a failed check ends it
with an error.

    console            printing and checking
    manifests          the manifests of deploy/
    wait               waiting for other processes
    carina_process     a process of Carina's, and its log
    controller_process the controller as a process, and `carina queue`
    gpu_node           a simulated node, and the plugin's process on it
    queue_gate         stands in for the admission policies of deploy/queue-gate.yaml
    scheduler          stands in for kube-scheduler
    claim_controller   stands in for the controllers that manage claims of templates
    kubelet            stands in for the kubelet
    container_runtime  stands in for containerd: applies CDI devices to containers
    stand_ins          has these stand-ins do what every pod needs
    expected_devices   the devices that containers should see
    team               a team with a queue, as it uses the API
    two_teams          two teams share the GPUs by queues
    embedded           the demo on simulated nodes and the embedded API
    real_cluster       the demo on a real Kubernetes
"""
