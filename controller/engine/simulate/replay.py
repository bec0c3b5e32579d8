"""From a snapshot to the trace that begins with it."""

from collections import Counter

from controller.engine.model.group import Group
from controller.engine.model.pod import Pod
from controller.engine.model.snapshot import Snapshot
from controller.engine.simulate.trace import Job, Trace


def replay(name: str, snapshot: Snapshot) -> Trace:
    """What follows from a snapshot if nothing comes from outside.

    A group ends when it has run as long as it says; one that says nothing does not end.
    """
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.group is not None:
            pods.setdefault(pod.group, []).append(pod)
    users = Counter(claim for pod in snapshot.pods for claim in pod.claims)
    claims = {claim.key: claim for claim in snapshot.claims}
    jobs = []
    for group in snapshot.groups:
        of_group = tuple(pods.get(group.key, ()))
        named = {key for pod in of_group for key in pod.claims}
        own = tuple(claims[key] for key in sorted(named) if key in claims and users[key] == 1)
        if of_group:
            work = _work_left(group, snapshot.now)
            jobs.append(Job(group, of_group, own, snapshot.now, work))
    return Trace(name=name, start=snapshot, jobs=tuple(jobs))


def _work_left(group: Group, now: float) -> float | None:
    if group.run_time is None:
        return None
    ran = 0.0 if group.started is None else now - group.started
    return max(0.0, group.run_time - ran)
