"""What the kubelet plugin and carina-sharing tell each other, a JSON object a line.

The plugin sends all shares that prepared claims have, when it connects and whenever they change.
carina-sharing keeps the last such message in a file, so that it goes on after its own restart, and
sends a report of all that it sees, at first and whenever something has changed, at least every
ten seconds. Both messages are whole states: one that is lost is made good by the next.
"""

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

VERSION: Final = 1
MOST_BYTES: Final = 4 * 2**20
"""Of a message: more than the shares of a node can come to."""

UnixTime: TypeAlias = Annotated[float, Field(ge=0, lt=253402300800)]
"""In seconds since 1970, of a year with four digits: what texts and the API have as a date."""


class MessageError(ValueError):
    """A line that is not a message of this version: says what is wrong with it."""


class _Part(BaseModel):
    """Fields of a newer version are ignored: the two sides are updated one after the other."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class Reference(_Part):
    """A pod or a claim."""

    namespace: str
    name: str
    uid: str


class WantedShare(_Part):
    """What a claim has of a GPU: one share, or the sum of several."""

    claim: Reference
    gpu: str
    """UUID."""
    memory_mib: int = Field(ge=1)
    cores: int = Field(ge=1, le=100)
    """Percent of the GPU's cores."""
    pods: tuple[Reference, ...] = ()
    """The pods that the claim is reserved for, as far as they are known."""


class MpsDevice(_Part):
    """A device that the clients of an MPS daemon compute on."""

    uuid: str
    """Of the GPU, or of a MIG device."""
    memory_mib: int | None = Field(None, ge=1)
    """What each client process can have of it; None for no limit."""


class WantedDaemon(_Part):
    """The MPS control daemon that a prepared claim needs: one, whatever devices it has."""

    claim: Reference
    devices: tuple[MpsDevice, ...] = Field(min_length=1)
    """In the order of CUDA."""
    thread_percentage: int | None = Field(None, ge=1, le=100)
    """Of the multiprocessors that each client process can use at most; None for no limit."""


class PodUse(_Part):
    """What the processes of a pod use of a GPU."""

    pod: Reference
    memory_mib: int
    sm_percent: int | None
    """Of the GPU's multiprocessors, over the last second; None if the driver does not say."""
    processes: int
    unmeasured: int = 0
    """Those of them of whose memory the driver says nothing, which counts as none."""


class EndedProcess(_Part):
    """A process of a pod that carina-sharing has ended."""

    pod: Reference
    container_id: str | None
    """None if it was of no container."""
    memory_mib: int
    """What it had of the GPU."""
    time: UnixTime
    why: str
    """`memory`: its use had exceeded its memory, and it had the most of it. `mps`: it computed
    outside of the MPS daemon of its claim. Later versions may have more words."""


class ShareUse(_Part):
    """What pods use of a GPU that have their shares of it together.

    Usually, that is one claim of one pod. A claim that several pods share and a pod with several
    claims on the GPU belong to one use, because no process tells of which claim it is.
    """

    gpu: str
    claims: tuple[str, ...]
    """UIDs."""
    given_mib: int
    given_cores: int
    used_mib: int
    pods: tuple[PodUse, ...]
    idle_since: UnixTime | None
    """Since when none of its processes has computed, in seconds since 1970; None if one does."""
    exceeded_since: UnixTime | None
    """Since when it has used more memory than given with the margin, in seconds since 1970."""
    exceeded: int = 0
    """How many times it has begun to."""
    ended: int = 0
    """How many of its processes carina-sharing has ended."""
    last_ended: EndedProcess | None = None


class Strangers(_Part):
    """Processes on a shared GPU that are of no pod with a share of it."""

    gpu: str
    processes: int
    memory_mib: int
    unmeasured: int = 0
    """Those of them of whose memory the driver says nothing."""


class Unwatched(_Part):
    """A shared GPU whose processes cannot be told."""

    gpu: str
    reason: str


class MpsDaemon(_Part):
    """How it is with the MPS daemon of a claim."""

    wanted: WantedDaemon
    """As it was wanted when this was seen: a claim can come to want another."""
    state: Literal["starting", "ready", "failed"]
    """`ready`: it answers, and its limits were read back. `failed`: it is tried again."""
    reason: str = ""
    """Why it is not ready."""
    restarts: int = 0
    """How many times it was started again."""


class Offers(_Part):
    """What carina-sharing does on this node, beside that it watches."""

    ends_violators: bool = False
    """Whether it ends processes of who has exceeded the memory of their share."""
    no_mps: str | None = "this version of carina-sharing runs no MPS daemons"
    """Why it runs no MPS daemons; None if it does."""


class Message(_Part):
    """A message of either side."""

    version: Literal[1] = VERSION

    def line(self) -> bytes:
        """The message as it is sent."""
        return self.model_dump_json().encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Reads a line.

        Raises:
            MessageError: it is not this message, or of another version.
        """
        try:
            return cls.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the line"
            raise MessageError(f"{cls.__name__}: {field}: {first['msg']}") from None


class WantedShares(Message):
    """All shares that prepared claims have on the node."""

    generation: int = Field(ge=0)
    """Grows with each change."""
    shares: tuple[WantedShare, ...]
    daemons: tuple[WantedDaemon, ...] | None = None
    """All MPS daemons that prepared claims need; others are ended, with their clients. None of a
    plugin from before there were any: then those that were wanted before go on."""

    def after(self, before: "WantedShares | None") -> Self:
        """The message with what it does not say as the message before it said it."""
        if self.daemons is not None or before is None:
            return self
        return self.model_copy(update={"daemons": before.daemons})


class SharingReport(Message):
    """All that is seen of them."""

    generation: int
    """That of the last `WantedShares`; 0 before the first."""
    time: UnixTime
    """When the samples were taken, in seconds since 1970."""
    uses: tuple[ShareUse, ...] = ()
    strangers: tuple[Strangers, ...] = ()
    unwatched: tuple[Unwatched, ...] = ()
    offers: Offers = Offers()
    daemons: tuple[MpsDaemon, ...] = ()
    """All that are wanted, and those that have not ended yet."""
