"""The library that the node plugin and the controller stand on: typed API objects, Kubernetes access."""
