"""Reads from the API server what a claim holds on this node."""

from collections.abc import Callable, Mapping

from carina_dra.kube.errors import ApiError, NotFound
from kubelet_plugin.claims.allocation import ClaimMissing, Reading, Unknown, read_allocation
from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.claims.failure import ApiUnavailable, ClaimGone


class ClaimReader:
    """Reads claims of one driver in one pool."""

    def __init__(
        self,
        get: Callable[[ClaimReference, float], Mapping[str, object]],
        *,
        driver: str,
        pool: str,
        share_interval_by_claim: bool = False,
    ) -> None:
        """`get` reads a ResourceClaim within a number of seconds; it raises ApiError.

        `share_interval_by_claim` says whether a claim may choose the time slices of shares.
        """
        self._get = get
        self._driver = driver
        self._pool = pool
        self._share_interval_by_claim = share_interval_by_claim

    def read(self, reference: ClaimReference, patience: float) -> Reading:
        """Reads the claim's allocation, waiting at most `patience` seconds for the API server."""
        try:
            body = self._get(reference, patience)
        except NotFound:
            return ClaimMissing(
                ClaimGone(reference, f"ResourceClaim {reference.key} does not exist")
            )
        except ApiError as error:
            return Unknown(ApiUnavailable(reference, str(error), error.retriable))
        return read_allocation(
            body,
            reference,
            driver=self._driver,
            pool=self._pool,
            share_interval_by_claim=self._share_interval_by_claim,
        )
