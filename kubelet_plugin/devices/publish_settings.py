"""The settings on which the published form of devices depends, besides the GPU."""

from dataclasses import dataclass
from typing import Final

SHARE_CORES: Final = 10
"""Percent of a GPU that a share gets by default, unless the settings say otherwise."""


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """How devices are published."""

    driver: str
    """Name of the DRA driver."""
    share_cores: int = SHARE_CORES
    """Percent of a GPU, 1 to 100, that a share gets whose request asks for no amount."""
