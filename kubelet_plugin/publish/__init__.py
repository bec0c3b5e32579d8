"""Publishes the node's devices: the pool, its ResourceSlices and the writes that update them."""
