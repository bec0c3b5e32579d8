"""A real Kubernetes for the tests: built from source, started in seconds, gone without a trace.

`cluster.running_cluster` gives a control plane, `node.running_node` a node that runs containers.
README.md tells the rest.
"""
