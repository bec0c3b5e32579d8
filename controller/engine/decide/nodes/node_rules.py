"""On which nodes a pod may be because of its volumes, and because of other pods."""

from collections.abc import Hashable

from carina_dra.resource import NodeSelector
from carina_dra.step_budget import StepBudget
from controller.engine.decide.nodes.labelled_nodes import LabelledNodes
from controller.engine.decide.nodes.pod_affinity import PodRules
from controller.engine.decide.nodes.spread import SpreadRules
from controller.engine.decide.nodes.volumes import VolumeRules
from controller.engine.model.pod import Pod
from controller.engine.model.reason import BadVolume
from controller.engine.state.occupancy import Occupancy


class NodeRules:
    """All rules that depend on more than the node and what it has left."""

    def __init__(self, occupancy: Occupancy) -> None:
        self._nodes = nodes = LabelledNodes(occupancy)
        self._pods = PodRules(occupancy, nodes)
        self._spread = SpreadRules(occupancy, nodes)
        self._volumes = VolumeRules(occupancy, nodes)

    def reached(self, devices: NodeSelector) -> frozenset[str]:
        """The nodes that can use the devices of a claim; none if the selector is not valid."""
        return self._nodes.select(devices)

    def problem(self, pod: Pod) -> BadVolume | None:
        """Why the pod can start on no node; None if nothing says so."""
        return self._volumes.problem(pod) if pod.volumes else None

    def allowed(self, pod: Pod, names: frozenset[str], budget: StepBudget) -> frozenset[str]:
        """Those of the nodes where the pod may be; pods that are leaving count as gone.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        if pod.volumes:
            names = self._volumes.allowed(pod, names, budget)
        names = self._pods.allowed(pod, names, budget)
        return self._spread.allowed(pod, names, budget) if pod.needs.spread else names

    def refused(self, pod: Pod, names: frozenset[str], budget: StepBudget) -> dict[str, str]:
        """The first rule that keeps the pod from each of the other nodes.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        found: dict[str, str] = {}
        for rule, allowed in (
            ("volumes", self._volumes.allowed),
            ("pod affinity", self._pods.allowed),
            ("topology spread", self._spread.allowed),
        ):
            left = allowed(pod, names, budget)
            if len(left) < len(names):
                found |= dict.fromkeys(names - left, rule)
            names = left
        return found

    def awaited(self, pod: Pod, budget: StepBudget) -> frozenset[str]:
        """The nodes where the pod may be only when pods have left that are being evicted.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        return self._pods.awaited(pod, budget)

    def kind(self, pod: Pod, budget: StepBudget) -> Hashable:
        """Equal for pods with equal needs that may be on the same nodes.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        return (
            self._pods.kind(pod, budget),
            self._spread.kind(pod) if pod.needs.spread else (),
            self._volumes.kind(pod) if pod.volumes else (),
        )
