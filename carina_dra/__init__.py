"""The library that node plugin and controller stand on: typed API objects, Kubernetes access."""
