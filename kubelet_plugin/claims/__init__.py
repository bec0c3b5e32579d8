"""The claims that hold devices of this node: what was allocated and what is recorded."""
