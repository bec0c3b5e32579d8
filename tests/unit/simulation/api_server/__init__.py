"""The pure parts of the embedded Kubernetes API. What clients see of it: tests/contract/kube."""
