"""A real Kubernetes for tests: built from source, started in seconds, and removed completely.

`cluster.running_cluster` starts a control plane, and `node.start` a node that runs containers. See
README.md.
"""
