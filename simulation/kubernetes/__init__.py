"""A real Kubernetes for the tests: built from source, started in seconds, removed completely.

`cluster.running_cluster` starts a control plane, `node.start` a node that runs containers.
README.md describes the rest.
"""
