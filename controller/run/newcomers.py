"""Where pods wait that a decision has not seen yet: it gives way to them."""

from collections.abc import Container


class Newcomers:
    """The namespaces in which pods have come or changed that wait. Any thread may note one."""

    def __init__(self) -> None:
        self._namespaces: set[str] = set()

    def note(self, namespace: str) -> None:
        """Records that a pod of a namespace waits, once its change is work for the loop."""
        self._namespaces.add(namespace)

    def seen(self) -> None:
        """Forgets all so far: the next decision knows them."""
        self._namespaces.clear()

    def are_besides(self, namespaces: Container[str]) -> bool:
        """Whether there are some in other namespaces than these."""
        return any(each not in namespaces for each in tuple(self._namespaces))
