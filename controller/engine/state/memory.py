"""What the last cycle has left for the next one, without what has changed since."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from controller.engine.model.plan import CarriedOver

V = TypeVar("V")


class EngineMemory:
    """A memory of which groups are forgotten one by one, and taken out when it is read."""

    def __init__(self, memory: CarriedOver) -> None:
        self._memory = memory
        self._forgotten: set[str] = set()

    def copy(self) -> "EngineMemory":
        """The same, which changes on its own."""
        copy = EngineMemory(self._memory)
        copy._forgotten = set(self._forgotten)
        return copy

    @property
    def memory(self) -> CarriedOver:
        """What is still known."""
        if self._forgotten:
            known = self._memory
            self._memory = replace(
                known,
                refusals=self._without(known.refusals),
                outdated=self._without(known.outdated),
                cursors=self._without(known.cursors),
                set_aside=self._without(known.set_aside),
                attempt_limits=self._without(known.attempt_limits),
            )
            self._forgotten = set()
        return self._memory

    def forget(self, group: str) -> None:
        """Forgets a group that has changed; at a constant cost."""
        known = self._memory
        if (
            group in known.refusals
            or group in known.outdated
            or group in known.cursors
            or group in known.set_aside
            or group in known.attempt_limits
        ):
            self._forgotten.add(group)

    def forget_refusals(self) -> None:
        """What was refused may be possible now."""
        # What is forgotten is looked at once only.
        if self._memory.refusals or self._memory.cursors:
            kept = self.memory
            self._memory = replace(
                kept,
                refusals={},
                cursors={},
                fair_shares={},
                wake=None,
                outdated={**kept.outdated, **kept.refusals},
            )

    def _without(self, known: Mapping[str, V]) -> dict[str, V]:
        return {key: value for key, value in known.items() if key not in self._forgotten}
