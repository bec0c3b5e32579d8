"""CEL selectors of every cost, as a tenant may write them."""

from random import Random
from typing import Final

_DOMAIN: Final = "gpu.carina.dev"
_ATTRIBUTES: Final = f"device.attributes['{_DOMAIN}']"
_MEMORY: Final = f"device.capacity['{_DOMAIN}'].memory"
_LONGEST: Final = 10 * 1024
"""Characters of an expression that the API server accepts."""


def selector(draw: Random) -> str:
    """An expression; the API server accepts most of them."""
    return draw.choice((_cheap, _nested, _nested, _false, _formatted, _long, _growing, _failing))(
        draw
    )[:_LONGEST]


def _cheap(draw: Random) -> str:
    return draw.choice(
        (
            f"{_ATTRIBUTES}.type == 'gpu'",
            f"{_ATTRIBUTES}.productName.contains('H100')",
            f"{_MEMORY}.compareTo(quantity('{draw.randint(1, 90)}Gi')) >= 0",
            f"{_ATTRIBUTES}.cudaComputeCapability.isGreaterThan(semver('8.0.0'))",
            "true",
        )
    )


def _nested(draw: Random) -> str:
    """Loops in loops, with a text of its own, so that no result can be remembered."""
    body = f"device.driver != '{draw.getrandbits(64):x}'"
    for level in range(draw.randint(1, 4)):
        values = ",".join(str(value) for value in range(draw.choice((3, 10, 20))))
        macro = draw.choice(("all", "all", "exists"))
        body = f"[{values}].{macro}(x{level}, {body})"
    return body


def _false(draw: Random) -> str:
    """Costs as much, and matches no device."""
    return f"{_nested(draw)} && device.driver == 'none'"


def _formatted(draw: Random) -> str:
    part = "%s" * draw.choice((1, 10, 60))
    arguments = ", ".join(["device.driver"] * part.count("%"))
    text = f"'{part}'.format([{arguments}])"
    return f"[1, 2, 3, 4, 5].all(x, {text} != 'x{draw.getrandbits(32):x}')"


def _long(draw: Random) -> str:
    text = "a" * draw.choice((100, 2_000, 9_000))
    return draw.choice(
        (
            f"'{text}{draw.getrandbits(32):x}'.contains(device.driver) || true",
            f"{_ATTRIBUTES}.productName.matches('({text[:500]})*b{draw.getrandbits(16)}') || true",
            f"'{text}'.replace('a', 'bb').size() > {draw.randint(0, 20_000)}",
        )
    )


def _growing(draw: Random) -> str:
    """A value that doubles with each level."""
    body = "cel.bind(v0, [device.driver, device.driver], "
    levels = draw.randint(2, 12)
    for level in range(1, levels):
        body += f"cel.bind(v{level}, v{level - 1} + v{level - 1}, "
    return body + f"v{levels - 1}.size() > {draw.randint(0, 100)}" + ")" * levels


def _failing(draw: Random) -> str:
    """Fails for some device, or for all."""
    return draw.choice(
        (
            f"{_ATTRIBUTES}.missing{draw.randint(0, 9)} == 'x'",
            "1 / 0 == 1",
            f"device.attributes['{_DOMAIN}'].type == 'gpu' || 1 / 0 == 1",
            "device.attributes['absent.example'].x == 1",
            "[1][5] == 1",
            "quantity('x1').isGreaterThan(quantity('1'))",
            f"int({_ATTRIBUTES}.uuid) > 1",
            "9223372036854775807 + 1 > 0",
        )
    )
