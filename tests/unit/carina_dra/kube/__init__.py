"""Access to the Kubernetes API: what can be said of its parts without a server."""
