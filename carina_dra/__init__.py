"""The library that node plugin and controller stand on.

Typed API objects (`resource`), device selectors (`cel`), which devices a claim gets on one node
(`allocator`) and on which of many (`placement`), and access to Kubernetes (`kube`).
"""
