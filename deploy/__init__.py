"""How Carina is deployed: the Helm chart, and the manifests that are rendered from it.

`deploy/chart` is the only source of what is installed. `values` says what can be chosen; the
chart's values.yaml, its schema and its README are generated from that, by `python -m
deploy.generate`. `manifests` renders the files of kustomize, and the single file of a release.
"""
