"""Errors of an allocation attempt. \"No devices\" is a result, not an error."""


class AllocationError(Exception):
    """The attempt fails on every node, because a claim, class or slice is not valid.

    The message names the object and the problem.
    """


class NodeAllocationError(AllocationError):
    """The attempt fails on this node, because one of its pools is invalid."""


class ExpressionError(AllocationError):
    """An expression of the claim or of its class does not compile: the node does not matter."""
