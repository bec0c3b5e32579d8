"""Many nodes: the cluster as it changes, nodes that are alike, and where a claim goes best."""
