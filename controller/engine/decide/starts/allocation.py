"""Places groups where there is room."""

from collections.abc import Container, Hashable, Sequence
from dataclasses import replace

from carina_dra.allocator.preference import Policy
from controller.engine.decide.gangs.assigner import Assigner
from controller.engine.decide.gangs.attempt import Enough, Got, Outcome, Refused
from controller.engine.decide.gangs.gang import Gang, Taken, wait_together
from controller.engine.decide.gangs.placement_unit import PlacementUnit
from controller.engine.decide.gangs.refusal import held_by_refusal
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.placement_policy import policy_of
from controller.engine.decide.nodes.places import Place, PlaceFinder
from controller.engine.decide.queues.capacity import balance, excess, nodes_of_firm_gpus, refusal
from controller.engine.decide.starts.reservation import Reservations
from controller.engine.model.group import Group
from controller.engine.model.pod import Pod
from controller.engine.model.reason import Behind, NoDomain, NoRoom, Reason, TooManyGpus


class Allocating:
    """Places the next chunk of one group after the other."""

    def __init__(self, trial: Trial, reservations: Reservations) -> None:
        self._trial = trial
        self._reservations = reservations
        self._state = trial.state
        self._refused: dict[Hashable, NoRoom | NoDomain] = {}
        """By what is asked for: it has no place, and nothing becomes free meanwhile."""
        self._behind: dict[Hashable, Behind] = {}
        """By what is asked for, by whom, and what is reserved: it would delay a reservation."""

    def attempt(self, group: Group) -> Outcome:
        """Places the next chunk of a group, if its queue lets it and there is room."""
        held = held_by_refusal(self._state.occupancy, group)
        outcome = self._attempt(group) if held is None else Refused(held)
        match outcome:
            case Refused(reason=NoRoom() | NoDomain()):
                self._reservations.consider(group)
            case Refused(reason=Behind()):
                pass  # it keeps the reservation that it may have
            case _:
                self._reservations.end(group)
        return outcome

    def _attempt(self, group: Group) -> Outcome:
        state = self._state
        chunk = self._trial.next_chunks.of(group)
        if chunk is None:
            return Enough()
        if not isinstance(chunk, PlacementUnit):
            return Refused(chunk)
        asked = self._trial.next_chunks.asked(group)
        over = refusal(state.occupancy, group.queue, asked, preemptible=group.preemptible)
        if over is not None:
            return Refused(over)
        policy = policy_of(state, group)
        kind = kind_of(self._trial.places, chunk, policy)
        rank = None if kind is None else (kind, self._reservations.rank(group))
        if kind in self._refused:
            return Refused(about(self._refused[kind], chunk))
        if rank in self._behind:
            return Refused(self._behind[rank])
        taken = self._start(group, chunk, policy)
        if isinstance(taken, Sequence):
            wait_together(self._trial, group, taken)
            return Got()
        if kind is not None and isinstance(taken, NoRoom | NoDomain):
            self._refused[kind] = taken
        if rank is not None and isinstance(taken, Behind):
            self._behind[rank] = taken
        return Refused(taken)

    def _start(
        self, group: Group, chunk: PlacementUnit, policy: Policy
    ) -> Sequence[Taken] | Reason:
        """Gives a chunk its places, unless its queues or reservations of others forbid them."""
        state = self._state
        before, mark = balance(state.occupancy, group.queue), state.occupancy.mark()
        taken = self._place(chunk, policy)
        if not isinstance(taken, Sequence):
            return taken
        exceeded = excess(state.occupancy, before)
        if isinstance(exceeded, TooManyGpus):
            state.occupancy.rollback(mark)
            again = self._place(chunk, policy, nodes_of_firm_gpus(state.occupancy, exceeded.queue))
            if isinstance(again, Sequence):
                taken, exceeded = again, excess(state.occupancy, before)
        reason = exceeded or self._reservations.delayed_by(group)
        if reason is not None:
            state.occupancy.rollback(mark)
            return reason
        return taken

    def _place(
        self, chunk: PlacementUnit, policy: Policy, nodes: frozenset[str] | None = None
    ) -> Sequence[Taken] | Reason:
        """Gives a chunk its places, on these nodes or on all."""
        taker = Assigner(self._trial, policy)

        def take(
            pod: Pod, within: frozenset[str] | None, avoided: Container[str]
        ) -> Place | Reason:
            among = within if nodes is None else nodes if within is None else within & nodes
            return taker.take(pod, among, avoided)

        return Gang(self._trial, take).place(chunk)


def kind_of(places: PlaceFinder, chunk: PlacementUnit, policy: Policy) -> Hashable | None:
    """Equal for chunks of which one has room where the other would; None if that is not known."""
    if _is_tied(chunk):
        return None
    return policy, _shape(places, chunk)


def _shape(places: PlaceFinder, chunk: PlacementUnit) -> Hashable:
    return (
        chunk.part.topology,
        tuple(map(places.kind, chunk.pods)),
        tuple(_shape(places, child) for child in chunk.children),
    )


def _is_tied(chunk: PlacementUnit) -> bool:
    """Whether pods that have a place say in which domain others of the chunk must be."""
    return bool(chunk.held) or any(map(_is_tied, chunk.children))


def about(reason: NoRoom | NoDomain, chunk: PlacementUnit) -> NoRoom | NoDomain:
    """A reason that was found for a chunk like this one, with the name of its own pod."""
    if isinstance(reason, NoRoom):
        pods = [pod.key for pod in chunk.all_pods()]
        return reason if reason.pod in pods else replace(reason, pod=pods[-1])
    return reason
