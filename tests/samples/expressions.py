"""Random expressions for a random device: most of them fit together, some do not."""

from collections.abc import Callable
from random import Random
from typing import Any

_DOMAIN = "gpu.example.com"
_DEVICE: dict[str, Any] = {
    "driver": _DOMAIN,
    "attributes": {
        "name": {"string": "fish"},
        "count": {"int": 3},
        "small": {"int": -7},
        "on": {"bool": True},
        "version": {"version": "1.2.3"},
        "names": {"strings": ["a", "b", "fish"]},
        "counts": {"ints": [1, 2, 3]},
        "other.org/z": {"string": "q"},
    },
    "capacity": {"memory": {"value": "80Gi"}, "cores": {"value": "1500m"}},
}

_DOUBLES = ["1.5", "0.0", "-2.25", "1e3", "9007199254740992.0", "9223372036854775808.0"]


def device() -> dict[str, Any]:
    """The device that the expressions are about."""
    return _DEVICE


def random_expression(random: Random) -> str:
    """A selector."""
    return _Grammar(random).truth(4)


class _Grammar:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._variables: list[tuple[str, str]] = []

    def _one_of(self, depth: int, leaves: list[Callable[[], str]], *more: Callable[[], str]) -> str:
        choices = leaves if depth <= 0 else [*leaves, *more, *more]
        return self._random.choice(choices)()

    def _of(self, kind: str, depth: int) -> str:
        return {
            "bool": self.truth,
            "int": self.integer,
            "string": self.string,
            "double": self.double,
            "list": self.ints,
            "strings": self.strings,
        }[kind](depth)

    def any(self, depth: int) -> str:
        """An expression of any type."""
        return self._of(self._random.choice(["bool", "int", "string", "double", "list"]), depth)

    def _variable(self, kind: str, otherwise: str) -> str:
        names = [name for name, of in self._variables if of == kind]
        return self._random.choice(names) if names else otherwise

    def truth(self, depth: int) -> str:
        """True or false."""
        d = depth - 1
        return self._one_of(
            depth,
            [
                lambda: self._random.choice(["true", "false"]),
                lambda: f'device.attributes["{_DOMAIN}"].on',
                lambda: f'device.driver == "{_DOMAIN}"',
                lambda: f'"{self._random.choice([_DOMAIN, "nope"])}" in device.attributes',
                lambda: f'has(device.attributes["{_DOMAIN}"].{self._name()})',
                lambda: "device.allowMultipleAllocations",
            ],
            lambda: f"({self.truth(d)} {self._random.choice(['&&', '||'])} {self.truth(d)})",
            lambda: f"!{self.truth(d)}",
            lambda: f"({self.truth(d)} ? {self.truth(d)} : {self.truth(d)})",
            lambda: f"{self.integer(d)} {self._compare()} {self.integer(d)}",
            lambda: f"{self.string(d)} {self._compare()} {self.string(d)}",
            lambda: f"{self.double(d)} {self._compare()} {self.double(d)}",
            lambda: f"{self.integer(d)} {self._random.choice(['<', '>='])} {self.double(d)}",
            lambda: (
                f"dyn({self.any(d)}) {self._random.choice(['==', '!=', '<'])} dyn({self.any(d)})"
            ),
            lambda: f"{self.any(d)} == {self.any(d)}",
            lambda: f"{self.integer(d)} in {self.ints(d)}",
            lambda: f"{self.string(d)} in {self.strings(d)}",
            lambda: (
                f"{self.string(d)}.{self._random.choice(['contains', 'startsWith', 'endsWith'])}"
                f"({self.string(d)})"
            ),
            lambda: (
                f'{self.string(d)}.matches("{self._random.choice(["^f.*h$", "[a-c]+", "x?"])}")'
            ),
            lambda: self._quantified(d),
            lambda: (
                f"{self.quantity()}.{self._random.choice(['isGreaterThan', 'isLessThan'])}"
                f"({self.quantity()})"
            ),
            lambda: f"{self.quantity()} == {self.quantity()}",
            lambda: f"{self.total()}.isInteger()",
            lambda: (
                f"{self.url()}.{self._random.choice(['getHost', 'getPort'])}() == {self.string(0)}"
            ),
            lambda: f"{self.url()}.getEscapedPath() == {self.string(0)}",
            lambda: f"{self.moment()} {self._compare()} {self.moment()}",
            lambda: f"dyn({self.integer(0)}) {self._compare()} {self.double(0)}",
            lambda: f"{self.version()}.isGreaterThan({self.version()})",
            lambda: f"{self.version()} == {self.version()}",
            lambda: f"{self.optional(d)}.hasValue()",
            lambda: f"cel.bind(v{depth}, {self.integer(d)}, {self._within(f'v{depth}', 'int', d)})",
            lambda: (
                f"sets.{self._random.choice(['contains', 'intersects', 'equivalent'])}"
                f"({self.ints(d)}, {self.ints(d)})"
            ),
            lambda: f"{self.ints(d)}.isSorted()",
            lambda: f'device.attributes["{_DOMAIN}"].{self._name()}.includes({self.any(0)})',
            lambda: (
                f"{self._random.choice(['isSemver', 'isQuantity', 'isIP', 'isCIDR', 'isURL'])}"
                f"({self.string(d)})"
            ),
            lambda: f"type({self.any(d)}) == {self._random.choice(['int', 'string', 'bool'])}",
        )

    def _within(self, name: str, kind: str, depth: int) -> str:
        self._variables.append((name, kind))
        made = self.truth(depth)
        self._variables.pop()
        return made

    def _quantified(self, depth: int) -> str:
        macro = self._random.choice(["all", "exists", "exists_one"])
        name = f"x{depth}"
        if self._random.random() < 0.3:
            key = f"i{depth}"
            self._variables.append((key, "int"))
            made = f"{self.ints(depth)}.{macro}({key}, {name}, {self._within(name, 'int', depth)})"
            self._variables.pop()
            return made
        return f"{self.ints(depth)}.{macro}({name}, {self._within(name, 'int', depth)})"

    def _compare(self) -> str:
        return self._random.choice(["==", "!=", "<", "<=", ">", ">="])

    def _name(self) -> str:
        names = ["name", "count", "small", "on", "version", "names", "counts", "nope"]
        return self._random.choice(names)

    def integer(self, depth: int) -> str:
        """An integer."""
        d = depth - 1
        return self._one_of(
            depth,
            [
                lambda: str(
                    self._random.choice([0, 1, 2, 3, 7, -1, 9007199254740993, 9223372036854775807])
                ),
                lambda: f'device.attributes["{_DOMAIN}"].{self._random.choice(["count", "small"])}',
                lambda: f'device.attributes["{_DOMAIN}"]["count"]',
                lambda: self._variable("int", "5"),
            ],
            lambda: f"({self.integer(d)} {self._random.choice('+-*/%')} {self.integer(d)})",
            lambda: f"-{self.integer(0)}" if self._random.random() < 0.2 else self.integer(d),
            lambda: f"size({self.string(d)})",
            lambda: f"{self.ints(d)}.size()",
            lambda: f"int({self.double(d)})",
            lambda: f'int("{self._random.choice(["12", "-4", "x", "0x1"])}")',
            lambda: f"{self.ints(d)}[{self.integer(0)}]",
            lambda: f"{self.string(d)}.indexOf({self.string(0)})",
            lambda: f"{self.ints(d)}.{self._random.choice(['sum', 'min', 'max'])}()",
            lambda: f"[{self.ints(d)}, {self.ints(0)}].flatten().min()",
            lambda: f"{self.total()}.asInteger()",
            lambda: f"{self.quantity()}.compareTo({self.quantity()})",
            lambda: f"{self.optional(d)}.orValue({self.integer(0)})",
            lambda: f"({self.truth(d)} ? {self.integer(d)} : {self.integer(d)})",
            lambda: f"{self.version()}.{self._random.choice(['major', 'minor', 'patch'])}()",
            lambda: f"sign({self.quantity()})",
        )

    def double(self, depth: int) -> str:
        """A double."""
        d = depth - 1
        return self._one_of(
            depth,
            [lambda: self._random.choice(_DOUBLES)],
            lambda: f"({self.double(d)} {self._random.choice('+-*/')} {self.double(d)})",
            lambda: f"double({self.integer(d)})",
            lambda: f"{self.total()}.asApproximateFloat()",
        )

    def string(self, depth: int) -> str:
        """A text."""
        d = depth - 1
        return self._one_of(
            depth,
            [
                lambda: self._random.choice(['"fish"', '"a"', '""', '"Fi sh"', "'b'", '"1.2.3.4"']),
                lambda: f'device.attributes["{_DOMAIN}"].name',
                lambda: 'device.attributes["other.org"].z',
                lambda: "device.driver",
            ],
            lambda: f"({self.string(d)} + {self.string(d)})",
            lambda: f"string({self.any(d)})",
            lambda: (
                f"{self.string(d)}.{self._random.choice(['lowerAscii', 'upperAscii', 'trim'])}()"
            ),
            lambda: f"{self.string(d)}.substring({self._random.randint(0, 3)})",
            lambda: f"{self.string(d)}.charAt({self._random.randint(0, 5)})",
            lambda: f'{self.string(d)}.replace("i", "o")',
            lambda: f'"%s-%d".format([{self.any(d)}, {self.integer(d)}])',
            lambda: f'{self.strings(d)}.join(",")',
            lambda: f'device.attributes["{_DOMAIN}"].?{self._name()}.orValue("x")',
            lambda: f'{self.string(d)}.find("[a-z]+")',
        )

    def ints(self, depth: int) -> str:
        """A list of integers."""
        d = depth - 1
        return self._one_of(
            depth,
            [
                lambda: self._random.choice(["[5, 5]", "[1, 2, 3]", "[3, 1, 3]", "[7]"]),
                lambda: f'device.attributes["{_DOMAIN}"].counts',
            ],
            lambda: f"[{self.integer(d)}, {self.integer(d)}]",
            lambda: f"({self.ints(d)} + {self.ints(d)})",
            lambda: f"{self.ints(d)}.map(m{depth}, {self.integer(0)})",
            lambda: f"{self.ints(d)}.filter(f{depth}, {self._within(f'f{depth}', 'int', d)})",
            lambda: f"{self._written()}.{self._random.choice(['sort', 'distinct', 'reverse'])}()",
            lambda: f"lists.range({self._random.randint(0, 4)})",
            lambda: f"{self._written()}.slice({self._random.randint(0, 1)}, 2)",
        )

    def _written(self) -> str:
        """A list of integers that is written out.

        What the elements of another list are may be open, and upstream takes that for the first
        overload of a map in no order.
        """
        return self._random.choice(["[5, 5]", "[1, 2, 3]", "[3, 1, 3]", "[7, 0]"])

    def strings(self, depth: int) -> str:
        """A list of texts."""
        d = depth - 1
        return self._one_of(
            depth,
            [
                lambda: self._random.choice(['["a", "fish"]', '["b"]']),
                lambda: f'device.attributes["{_DOMAIN}"].names',
            ],
            lambda: f'{self.string(d)}.split("{self._random.choice(["i", "", "."])}")',
            lambda: f"[{self.string(d)}, {self.string(d)}]",
        )

    def quantity(self) -> str:
        """A quantity."""
        texts = ["40Gi", "1500m", "1", "80Gi", "85899345920", "x", "1.5Gi", "8Ei", "2000m", "1.0"]
        texts += ["1Pi", "9223372036854775807", "900000000000000000", "1e18", "0.3Gi"]
        return self._random.choice(
            [
                f'device.capacity["{_DOMAIN}"].memory',
                f'device.capacity["{_DOMAIN}"].cores',
                f'quantity("{self._random.choice(texts)}")',
                'quantity("3Gi")',
                'quantity("3")',
            ]
        )

    def version(self) -> str:
        """A semantic version."""
        texts = ["1.2.3", "1.2.4", "1.2.3-rc.1", "2.0.0+build", "1.2", "01.2.3"]
        return self._random.choice(
            [
                f'device.attributes["{_DOMAIN}"].version',
                f'semver("{self._random.choice(texts)}")',
                f'semver("v{self._random.choice(texts)}", true)',
            ]
        )

    def total(self) -> str:
        """A quantity, a sum or a difference. Upstream cannot compare the latter with `==`."""
        return self._random.choice(
            [
                self.quantity(),
                f"{self.quantity()}.add({self.quantity()})",
                f"{self.quantity()}.sub({self._random.choice([3, -7, 9223372036854775807])})",
            ]
        )

    def url(self) -> str:
        """A URL."""
        texts = ["//h/p", "///h/p", "//", "http://h:80/p q", "/p#f", "http://a:1/?x#f", "a:b", "p"]
        return f'url("{self._random.choice(texts)}")'

    def moment(self) -> str:
        """A point in time."""
        seconds = [0, 1, 253402300799, 253402300800, -62135596800, -62135596801]
        return self._random.choice(
            [
                f"timestamp({self._random.choice(seconds)})",
                'timestamp("9999-12-31T23:59:59Z")',
                'timestamp("0001-01-01T00:00:00+01:00")',
                'timestamp(253402300799) + duration("1s")',
                'timestamp(-62135596800) - duration("1s")',
            ]
        )

    def optional(self, depth: int) -> str:
        """A value or none."""
        return self._random.choice(
            [
                f"optional.of({self.integer(depth)})",
                "optional.none()",
                f"optional.ofNonZeroValue({self.integer(0)})",
                f"{self.ints(depth)}[?{self._random.randint(0, 3)}]",
                f"{self.ints(depth)}.first()",
                f"optional.of({self.integer(0)}).optMap(o, o + 1)",
            ]
        )
