"""Two teams share the GPUs of a cluster by queues: one borrows, the other gets its quota back.

Everything is done and seen through the API, on a real Kubernetes as on the embedded API.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from carina_dra.kube.client import Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from controller.names import GATE
from simulation.demo.console import Console
from simulation.demo.controller_process import carina_queue
from simulation.demo.team import Team
from simulation.demo.wait import wait_for

T = TypeVar("T")

TEAMS: Final = ("research", "production")
"""The names of the teams, and of their namespaces."""
_SWEEP, _TRAIN, _EVALUATE = "sweep", "train", "evaluate"
_SWEEP_GPUS: Final = 2
_GANG_PODS: Final = 2
_NO_ROOM: Final = "NoRoom"
_SECONDS: Final = 90.0
"""How long a step may take; a real kubelet takes a second or two to start a pod."""


def show(console: Console, kubeconfig: Path, gpus: int, attend: Callable[[], None]) -> None:
    """Shows how two teams share a cluster, on which the controller runs.

    Each team has a namespace. No GPU is in use, and `gpus`, their number, is a multiple of 4.
    While something is waited for, `attend` is called again and again.

    Raises:
        DemoError: a check failed.
    """
    console.headline("Two teams share the GPUs by queues")
    with Client(from_kubeconfig(kubeconfig), user_agent="demo") as client:
        research, production = (Team(client, name) for name in TEAMS)
        story = _Story(console, research, production, gpus, attend)
        story.create_queues()
        story.borrow()
        story.reclaim()
        story.wait_for_room()
        story.show_queues(kubeconfig)
        story.start_whole()
        story.end()


@dataclass(frozen=True, slots=True)
class _Story:
    """What happens, in order of the methods."""

    console: Console
    research: Team
    production: Team
    gpus: int
    attend: Callable[[], None]

    @property
    def quota(self) -> int:
        """The GPUs that each team is guaranteed. A gang needs all of them."""
        return self.gpus // 2

    def create_queues(self) -> None:
        for team in self._teams:
            team.create_queue(self.quota)
        self.console.say(
            f"Each team is guaranteed {self.quota} of the {self.gpus} GPUs and may borrow what the "
            "other does not use."
        )

    def borrow(self) -> None:
        pods = self.gpus // _SWEEP_GPUS
        self.console.call(f"research submits {pods} pods with {_SWEEP_GPUS} GPUs each")
        self.research.submit(_SWEEP, pods, _SWEEP_GPUS)
        self._await_running(self.research, _SWEEP, pods)
        self.console.check(
            f"research has all {self.gpus} GPUs, {self.gpus - self.quota} of them borrowed",
            self.research.gpus == self.gpus,
        )

    def reclaim(self) -> None:
        before = self.research.running(_SWEEP)
        self._submit_gang(self.production, _TRAIN)
        self._await_running(self.production, _TRAIN, _GANG_PODS)
        self._until("the evicted pods to leave", lambda: self.research.gpus <= self.quota or None)
        left = self.research.running(_SWEEP)
        evicted = [pod for pod in before if pod not in left]
        self.console.check(
            f"production has its quota back, for which {', '.join(evicted)} were evicted",
            evicted and self.production.gpus == self.quota,
        )
        self.console.check(
            f"research keeps its own quota, with {', '.join(left)}",
            self.research.gpus == len(left) * _SWEEP_GPUS == self.quota,
        )

    def wait_for_room(self) -> None:
        self._submit_gang(self.research, _EVALUATE)
        message = self._until(
            "the reason why the gang waits", lambda: self.research.refusal(_EVALUATE, _NO_ROOM)
        )
        self.console.say(f"condition Admitted of its PodGroup: {_NO_ROOM}")
        self.console.say("\n".join(f"  {part}" for part in message.split("; ")))
        gates = [
            gate
            for pod in self.research.pods(_EVALUATE)
            for gate in pod["spec"].get("schedulingGates", ())
        ]
        self.console.check(
            "no pod of the gang starts: both wait at their gate, without devices",
            gates == [{"name": GATE}] * _GANG_PODS and self.research.gpus == self.quota,
        )

    def show_queues(self, kubeconfig: Path) -> None:
        self.console.call("carina queue")
        table = carina_queue(kubeconfig)
        self.console.say(table)
        rows = [line.split() for line in table.splitlines()[1:]]
        sweeping = str(self.quota // _SWEEP_GPUS)
        self.console.check(
            "it counts the groups of each queue that run and that wait",
            {row[0]: row[-2:] for row in rows}
            == {"production": ["1", "0"], "research": [sweeping, "1"]},
        )

    def start_whole(self) -> None:
        self.console.call("the work of production ends")
        self.production.end(_TRAIN)
        self._await_running(self.research, _EVALUATE, _GANG_PODS)
        self.console.check(
            "the gang of research has started whole, on what production does not use",
            self.research.gpus == self.gpus,
        )

    def end(self) -> None:
        for team in self._teams:
            team.leave()
        self._until("pods and claims to be gone", lambda: all(team.is_gone for team in self._teams))
        for team in self._teams:
            team.dissolve()

    @property
    def _teams(self) -> tuple[Team, ...]:
        return (self.research, self.production)

    def _submit_gang(self, team: Team, run: str) -> None:
        gpus = self.quota // _GANG_PODS
        self.console.call(f"{team.name} submits a gang of {_GANG_PODS} pods with {gpus} GPUs each")
        team.submit_gang(run, _GANG_PODS, gpus)

    def _await_running(self, team: Team, run: str, pods: int) -> None:
        def running() -> dict[str, str] | None:
            found = team.running(run)
            return found if len(found) == pods else None

        for pod, devices in sorted(self._until(f"{pods} pods of {run} to run", running).items()):
            self.console.say(f"{pod} on {devices}")

    def _until(self, what: str, condition: Callable[[], T | None]) -> T:
        def attended() -> T | None:
            self.attend()
            return condition()

        return wait_for(what, attended, seconds=_SECONDS)
