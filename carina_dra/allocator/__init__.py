"""The allocator: the devices that claims get on one node.

`gather` resolves the pools of the node, `check` validates the claims, and `allocate` chooses the
devices. All of it is pure. `carina_dra.placement` chooses among nodes.
"""
