"""Times as the API writes them (meta/v1): RFC 3339 in UTC. Ours are Unix seconds."""

from datetime import UTC, datetime


def timestamp(at: float) -> str:
    """A `Time`, to the second: what metadata, conditions and taints carry."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(at: float) -> str:
    """A `MicroTime`: what Events and Leases carry."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
