"""The resources that claims need on the node: wanted, observed, created and removed."""
