"""Why an attempt to allocate cannot be answered with yes or no."""


class AllocationError(Exception):
    """The attempt fails on every node: something asked for or offered is wrong.

    The message names the claim and request, or the class, and what is wrong with it.
    """


class NodeAllocationError(AllocationError):
    """The attempt fails on this node, whose pools are inconsistent; another may do."""
