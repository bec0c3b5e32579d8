"""IP addresses and networks (apiserver `library/ip.go`, `library/cidr.go`)."""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.cost import constant
from carina_dra.cel.functions.overload import function, method
from carina_dra.cel.types import BOOL, CIDR, INT, IP, STRING
from carina_dra.cel.values import Cidr, Ip, shown

_LONGEST: Final = 64
"""The maximal number of characters of an address; none is longer."""
_COST: Final = constant(20)
_CANONICAL_PREFIX: Final = 3
"""The maximal number of digits of a prefix length."""


def _ip(text: str) -> Ip:
    problem = EvaluationError(f"IP Address {shown(text)} parse error during conversion from string")
    if "%" in text or len(text) > _LONGEST:
        raise problem
    try:
        address = ip_address(text)
    except ValueError:
        raise problem from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise problem
    return Ip(address)


def _cidr(text: str) -> Cidr:
    problem = EvaluationError(
        f"network address parse error during conversion from string: {shown(text)}"
    )
    written, slash, length = text.rpartition("/")
    is_number = length.isdecimal() and length.isascii() and len(length) <= _CANONICAL_PREFIX
    if not slash or not is_number or (length.startswith("0") and length != "0"):
        raise problem
    try:
        address = _ip(written).address
    except EvaluationError:
        raise problem from None
    if int(length) > address.max_prefixlen:
        raise problem
    return Cidr(address, int(length))


def _is_ip(text: str) -> bool:
    try:
        _ip(text)
    except EvaluationError:
        return False
    return True


def _is_cidr(text: str) -> bool:
    try:
        _cidr(text)
    except EvaluationError:
        return False
    return True


def _is_global_unicast(value: Ip) -> bool:
    address = value.address
    if isinstance(address, IPv4Address) and address == IPv4Address("255.255.255.255"):
        return False
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or _is_link_local_unicast(value)
    )


def _is_link_local_unicast(value: Ip) -> bool:
    return value.address.is_link_local


def _is_link_local_multicast(value: Ip) -> bool:
    address = value.address
    if isinstance(address, IPv4Address):
        return str(address).startswith("224.0.0.")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


def _contains_ip(network: Cidr, value: Ip) -> bool:
    return value.address.version == network.address.version and value.address in network.network


def _contains_cidr(network: Cidr, other: Cidr) -> bool:
    if other.address.version != network.address.version:
        return False
    return network.prefix <= other.prefix and other.address in network.network


def _masked(value: Cidr) -> Cidr:
    return Cidr(value.network.network_address, value.prefix)


OVERLOADS: Final = (
    function("ip", (STRING,), IP, _ip, _COST),
    function("isIP", (STRING,), BOOL, _is_ip, _COST),
    function("ip.isCanonical", (STRING,), BOOL, lambda text: str(_ip(text).address) == text, _COST),
    function("string", (IP,), STRING, lambda value: str(value.address), _COST),
    method("family", (IP,), INT, lambda value: value.address.version),
    method("isUnspecified", (IP,), BOOL, lambda value: value.address.is_unspecified, _COST),
    method("isLoopback", (IP,), BOOL, lambda value: value.address.is_loopback, _COST),
    method("isLinkLocalMulticast", (IP,), BOOL, _is_link_local_multicast, _COST),
    method("isLinkLocalUnicast", (IP,), BOOL, _is_link_local_unicast, _COST),
    method("isGlobalUnicast", (IP,), BOOL, _is_global_unicast, _COST),
    function("cidr", (STRING,), CIDR, _cidr, _COST),
    function("isCIDR", (STRING,), BOOL, _is_cidr, _COST),
    function("string", (CIDR,), STRING, lambda value: f"{value.address}/{value.prefix}", _COST),
    method("containsIP", (CIDR, IP), BOOL, _contains_ip, _COST),
    method(
        "containsIP",
        (CIDR, STRING),
        BOOL,
        lambda net, text: _contains_ip(net, _ip(text)),
        constant(40),
    ),
    method("containsCIDR", (CIDR, CIDR), BOOL, _contains_cidr, _COST),
    method(
        "containsCIDR",
        (CIDR, STRING),
        BOOL,
        lambda net, text: _contains_cidr(net, _cidr(text)),
        constant(40),
    ),
    method("ip", (CIDR,), IP, lambda value: Ip(value.address)),
    method("prefixLength", (CIDR,), INT, lambda value: value.prefix),
    method("masked", (CIDR,), CIDR, _masked, _COST),
)
