"""The form in which the health of GPUs outlasts the plugin: JSON, read strictly.

`binding` names the boot, so that a record of an earlier boot says what is over.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias, assert_never

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
)

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.inventory.damping import (
    Failing,
    Recovered,
    Recovering,
    Trouble,
    TroubleKey,
)
from kubelet_plugin.inventory.diagnosis import HealthMemory
from kubelet_plugin.inventory.faults import Fault
from kubelet_plugin.inventory.health import (
    FOUND_BY_DRIVER,
    DriverVerdict,
    GpuLost,
    GpuProblem,
    GpuProblems,
    GpuUnreadable,
    NvmlHang,
    in_order,
)
from kubelet_plugin.inventory.mig import MigPlacement, MigSite
from kubelet_plugin.inventory.node_health import RememberedHealth

_VERSION: Final = 1
_FIRST_YEAR: Final = 2000
"""Differences of times are computed, which the first years do not allow."""
_FOUND: Final = {kind.state: kind for kind in FOUND_BY_DRIVER}
State = Literal[
    "lost",
    "needs-reboot",
    "needs-reset",
    "memory-failed",
    "unreadable",
    "drain",
    "fabric",
    "degraded",
]


def _in_this_age(time: datetime) -> datetime:
    if time.year < _FIRST_YEAR:
        raise ValueError(f"the year is before {_FIRST_YEAR}")
    return time


_Time: TypeAlias = Annotated[AwareDatetime, AfterValidator(_in_this_age)]


class HealthRecordError(Exception):
    """The record is not one; the message says where."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Site(_Form):
    profile: int
    start: int
    size: int


class _Fault(_Form):
    xid: int
    site: _Site | None
    first: _Time
    last: _Time
    count: Annotated[int, Field(ge=1)]
    binding: str


class _Failure(_Form):
    function: str
    code: str


class _Finding(_Form):
    reason: str
    text: str


class _Problem(_Form):
    state: State
    since: _Time
    site: _Site | None = None
    because: _Finding | _Failure | Annotated[float, Field(ge=0)]
    """The seconds of a hang."""


_Problems: TypeAlias = tuple[_Problem, ...]


class _Trouble(_Form):
    gpu: str
    what: State | Literal["unanswered"]
    site: _Site | None
    phase: Literal["failing", "recovering", "recovered"]
    faults: Annotated[int, Field(ge=1)]
    at: float | None
    """Seconds since 1970; None while the GPU fails."""
    problems: _Problems


class _Record(_Form):
    version: Literal[1]
    faults: Mapping[str, tuple[_Fault, ...]]
    problems: Mapping[str, _Problems]
    troubles: tuple[_Trouble, ...]


def written(remembered: RememberedHealth) -> bytes:
    """Returns the record."""
    memory = remembered.memory
    record = _Record(
        version=_VERSION,
        faults={
            uuid: tuple(_fault_form(fault) for fault in faults.values())
            for uuid, faults in memory.faults.items()
        },
        problems={
            uuid: _problem_forms(problems) for uuid, problems in memory.problems.items() if problems
        },
        troubles=tuple(_trouble_form(key, trouble) for key, trouble in remembered.troubles.items()),
    )
    return record.model_dump_json(indent=1).encode() + b"\n"


def read(content: bytes) -> RememberedHealth:
    """Returns what a record says. Raises HealthRecordError."""
    try:
        record = _Record.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise HealthRecordError(f"{where}: {first['msg']}") from error
    faults = {
        uuid: {fault.key: fault for fault in map(_fault, forms)}
        for uuid, forms in record.faults.items()
    }
    try:
        problems = {uuid: _problems(forms) for uuid, forms in record.problems.items()}
        troubles = dict(map(_trouble, record.troubles))
    except ValueError as error:
        raise HealthRecordError(str(error)) from error
    return RememberedHealth(HealthMemory(faults, problems), troubles)


def _site_form(site: MigSite | None) -> _Site | None:
    if site is None:
        return None
    at = site.placement
    return _Site(profile=site.profile_id, start=at.start, size=at.size)


def _site(form: _Site | None) -> MigSite | None:
    return None if form is None else MigSite(form.profile, MigPlacement(form.start, form.size))


def _fault_form(fault: Fault) -> _Fault:
    return _Fault(
        xid=fault.xid,
        site=_site_form(fault.site),
        first=fault.first,
        last=fault.last,
        count=fault.count,
        binding=fault.binding,
    )


def _fault(form: _Fault) -> Fault:
    return Fault(form.xid, _site(form.site), form.first, form.last, form.count, form.binding)


def _problem_forms(problems: GpuProblems) -> _Problems:
    return tuple(map(_problem_form, in_order(problems)))


def _problem_form(problem: GpuProblem) -> _Problem:
    because: _Finding | _Failure | float
    if isinstance(problem, GpuLost | GpuUnreadable):
        match problem.failure:
            case NvmlFailure(function, code):
                because = _Failure(function=function, code=code)
            case NvmlHang(seconds):
                because = seconds
    else:
        because = _Finding(reason=problem.reason, text=problem.finding.text)
    return _Problem.model_validate(
        {
            "state": problem.state,
            "since": problem.since,
            "site": _site_form(problem.site),
            "because": because,
        }
    )


def _problems(forms: _Problems) -> GpuProblems:
    return frozenset(map(_problem, forms))


def _problem(form: _Problem) -> GpuProblem:
    """Returns the problem. Raises ValueError: a state does not follow from that."""
    match form.state, form.because:
        case "lost", _Failure(function=function, code=code):
            return GpuLost(NvmlFailure(function, code), form.since)
        case "unreadable", _Failure(function=function, code=code):
            return GpuUnreadable(NvmlFailure(function, code), form.since)
        case "unreadable", float(seconds):
            return GpuUnreadable(NvmlHang(seconds), form.since)
        case state, _Finding(reason=reason, text=text) if state in _FOUND:
            return _FOUND[state](DriverVerdict(reason, text), form.since, _site(form.site))
        case _:
            pass
    raise ValueError(f"problem {form.state} cannot be because of {form.because}")


def _trouble_form(key: TroubleKey, trouble: Trouble) -> _Trouble:
    uuid, (what, site) = key
    match trouble:
        case Failing(problems):
            phase, at = "failing", None
        case Recovering(problems, _, answers_since):
            phase, at = "recovering", answers_since
        case Recovered(_, recovered_at):
            problems, phase, at = frozenset(), "recovered", recovered_at
        case _:
            assert_never(trouble)
    return _Trouble.model_validate(
        {
            "gpu": uuid,
            "what": what,
            "site": _site_form(site),
            "phase": phase,
            "faults": trouble.faults,
            "at": at,
            "problems": _problem_forms(problems),
        }
    )


def _trouble(form: _Trouble) -> tuple[TroubleKey, Trouble]:
    key = form.gpu, (form.what, _site(form.site))
    problems = _problems(form.problems)
    match form.phase, form.at:
        case "failing", None:
            return key, Failing(problems, form.faults)
        case "recovering", float(at):
            return key, Recovering(problems, form.faults, at)
        case "recovered", float(at):
            return key, Recovered(form.faults, at)
        case _:
            pass
    raise ValueError(f"trouble of {form.gpu}: phase {form.phase} at {form.at}")
