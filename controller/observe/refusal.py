"""What kube-scheduler says of pods that the controller has given a node."""

from controller.observe.pod import ObservedPod


class Refusals:
    """The pods of queues without a gate that kube-scheduler finds no node for."""

    def __init__(self) -> None:
        self.since: dict[str, float] = {}
        """By pod: since when, as a Unix time."""
        self.kept: set[str] = set()
        """The pods of these that stay with their devices, as long as nobody else needs these."""
        self._last_node: dict[str, str] = {}
        """By pod: the node that it was given last."""

    def give(self, pod: str, node: str) -> None:
        """Records that a pod is given a node, about which kube-scheduler is yet to say."""
        self._last_node[pod] = node
        self._end(pod)

    def put_pod(self, pod: ObservedPod, now: float, *, is_starting: bool) -> None:
        """Applies what is said of a pod, unless that is about an earlier start."""
        is_refused = pod.verdict is not None and pod.given is not None and pod.is_waiting
        if pod.queue is not None and is_refused and not is_starting:
            self.since.setdefault(pod.key, now)
        else:
            self._end(pod.key)

    def remove_pod(self, pod: str) -> None:
        """Applies that a pod is gone."""
        self._end(pod)
        self._last_node.pop(pod, None)

    def last_node(self, pod: ObservedPod) -> str | None:
        """The node that a pod was given last."""
        return self._last_node.get(pod.key, pod.given)

    def _end(self, pod: str) -> None:
        self.since.pop(pod, None)
        self.kept.discard(pod)
