"""A name without a domain is in the domain of the driver."""

import pytest

from carina_dra.resource import lookup

NAMED = {
    "gpu.example.com/model": "model in full",
    "model": "model",
    "kind": "kind",
    "other.com/size": "size of another domain",
}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("gpu.example.com/model", "model in full"),
        ("gpu.example.com/kind", "kind"),
        ("other.com/size", "size of another domain"),
        ("other.com/kind", None),
        ("gpu.example.com/size", None),
        ("gpu.example.com/other.com/size", "size of another domain"),
        ("size", None),
        ("", None),
    ],
)
def test_names_are_looked_up_in_full_then_in_the_drivers_domain(
    name: str, found: str | None
) -> None:
    assert lookup(NAMED, name, "gpu.example.com") == found
