"""What work costs on what somebody else wrote, in thousandths of a step: about 10 ns each.

A step is 10 microseconds on a core of 2025 (`step_budget`). The prices were measured on one, and
rounded up. They depend on the work only, and not on what is remembered of it, so that the same
question costs the same in each process. Work that does not grow with what a tenant wrote, such as
reading what a driver published, has no price.
"""

from typing import Final

STEP: Final = 1_000
"""The parts of a step."""

NODE: Final = 2_000
"""A look at a node: at its conditions, or for its devices."""
_ATTEMPT: Final = 50_000
_ATTEMPT_PER_NODE: Final = 10

CONDITION: Final = 60
"""A condition of a pod that is looked at on a node: a requirement, a label or a toleration."""
VALUES_PER_CONDITION: Final = 100
"""So many values of a requirement take as long as a condition."""

# Questions, in steps.
QUESTION: Final = 2
"""Asking for the best node, if nothing new has to be found out."""
KIND_PER_NODE: Final = 50
"""Nodes that an attempt passes over in a step."""
LOSSES: Final = 1
"""Nodes of which an attempt finds out in a step what a pod costs pods to come."""

LEAST: Final = 1_000
"""What may be spent to learn how much a request takes at least of what a queue counts.

It is asked outside of attempts, so that nobody waits for it longer than 10 ms.
"""
LEAST_OF_CLAIM: Final = 4 * LEAST
"""What may be spent to learn it of all requests of a claim, and to compile their expressions."""

CLAIM: Final = 2
"""Checking a claim, and each of its requests."""
EXPRESSION_CHARACTERS: Final = 10
"""So many characters of an expression are compiled in a step."""

# Selectors and derived attributes.
EVALUATION: Final = 80
"""Evaluating an expression for a device, whatever it does."""
CEL_UNIT: Final = 20
"""A unit of the cost that CEL counts. It takes 130 to 240 ns."""

# The search for devices on a node.
SEARCH: Final = 1_000
"""Beginning a search."""
DECISION: Final = 400
"""One decision: which alternative, or which device next."""
CANDIDATE: Final = 60
"""A device that is passed over, since it is in use or does not match."""
TAKEN: Final = 300
"""A device that is taken and given back: its counters are drawn, and put back."""
CONSTRAINT: Final = 100
"""A constraint of the claim to which a device is added."""
SYMMETRY: Final = 100
"""A device that is classified, so that of equal devices only one is tried."""

# The conditions that a node must meet before it is searched.
ALTERNATIVE: Final = 100
"""An alternative of a request that is looked at, with a pool or a place."""
AMOUNT: Final = 100
"""What a request takes of a capacity of one device."""
PACKING: Final = 150
"""Whether a number of devices fit together."""
GROUP: Final = 100
"""The devices that draw from the same counters, of those whose fitting is looked at."""
VALUE: Final = 20
"""A value of an attribute, or a device by it, that is compared."""


def attempt_limit(nodes: int) -> int:
    """How many steps a search for a place may cost in a cluster of this size, if nobody says."""
    return _ATTEMPT + _ATTEMPT_PER_NODE * nodes
