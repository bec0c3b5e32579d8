"""Times as the API writes them (meta/v1): RFC 3339 in UTC. Arguments are Unix seconds."""

from datetime import UTC, datetime


def timestamp(at: float) -> str:
    """A `Time`, in whole seconds: metadata, conditions and taints have these."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(at: float) -> str:
    """A `MicroTime`: Events and Leases have these."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
