"""What comes of an attempt to place the next chunk of a group."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from controller.engine.model.group import Group
from controller.engine.model.reason import Reason


@dataclass(frozen=True, slots=True)
class Got:
    """The chunk has its places."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It has none, for this reason."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Enough:
    """Nothing more is done for the group now."""


Outcome: TypeAlias = Got | Refused | Enough
Attempt: TypeAlias = Callable[[Group], Outcome]
