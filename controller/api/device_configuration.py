"""The admission policy of opaque device configurations, generated from the types that read them.

The kubelet plugin reads a configuration when a pod starts, so a misspelt one would hold a device
that the pod cannot get. The policy refuses at admission what the plugin would refuse for the
configuration's own sake, by API version, kind, fields and values. Whether the kind suits the device
is known only after allocation.

It also refuses a request for several shares by MPS that may be of several GPUs, which the plugin
would refuse in most cases.

The rules are those of the JSON schemas that pydantic makes of the types. `x-remedy` in a schema
says what to do about a value that is not one of its own.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import BaseModel

from carina_dra.config import nvidia
from carina_dra.config.device import API_VERSION, KINDS
from carina_dra.quantity import LONGEST_TEXT

Schema: TypeAlias = Mapping[str, Any]

_PARAMETERS: Final = "opaque.parameters"

_POLICY: Final = """\
# Refuses misspelt opaque configurations of the driver in claims, templates and classes: an unknown
# kind or field, or a value that a field does not have. Otherwise the node refuses them, after the
# pod has got its device. Configurations of other drivers are not looked at. Several shares by MPS
# are refused, too, if nothing keeps them on one GPU.
#
# The driver's name is the first variable. Errors of the policy itself admit the object, because the
# node checks again.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ include "carina.fullname" . }}-device-configuration{{ include "carina.annotations" . }}
  labels:
    {{- include "carina.labels" . | nindent 4 }}
spec:
  failurePolicy: Ignore
  matchConstraints:
    resourceRules:
      - apiGroups: [resource.k8s.io]
        apiVersions: [v1]
        resources: [resourceclaims, resourceclaimtemplates]
        operations: [CREATE]
        scope: Namespaced
      - apiGroups: [resource.k8s.io]
        apiVersions: [v1]
        resources: [deviceclasses]
        operations: [CREATE, UPDATE]
        scope: Cluster
  matchConditions:
    # A class from before the policy can be labelled.
    - name: changes-the-spec
      expression: request.operation == 'CREATE' || object.spec != oldObject.spec
  variables:
    - name: driver
      expression: "'{{ .Values.driverName }}'"
    - name: path
      expression: >-
        request.resource.resource == 'deviceclasses' ? 'spec.config' :
        request.resource.resource == 'resourceclaims' ? 'spec.devices.config' :
        'spec.spec.devices.config'
    - name: configs
      expression: >-
        request.resource.resource == 'deviceclasses' ? dyn(object.spec).?config.orValue([]) :
        request.resource.resource == 'resourceclaims' ?
        dyn(object.spec).?devices.?config.orValue([]) :
        dyn(object.spec).?spec.?devices.?config.orValue([])
    # For each configuration what is wrong with it, or nothing.
    - name: problems
      expression: |-
        variables.configs.map(c,
          !has(c.opaque) || c.opaque.driver != variables.driver ? '' : [c.opaque.parameters].map(p,
PROBLEM
          )[0])
    - name: devices
      expression: >-
        request.resource.resource == 'deviceclasses' ? dyn({}) :
        request.resource.resource == 'resourceclaims' ? dyn(object.spec).?devices.orValue({}) :
        dyn(object.spec).?spec.?devices.orValue({})
    # For each configuration that demands mps for shares, the requests that it is for.
    - name: mpsFor
      expression: |-
        variables.configs.filter(c,
          has(c.opaque) && c.opaque.driver == variables.driver && [c.opaque.parameters].all(p,
          has(p.apiVersion) && p.apiVersion == 'VERSION' &&
          has(p.kind) && p.kind == 'ShareConfig' && has(p.enforcement) &&
          ['memory', 'cores'].exists(amount, amount in p.enforcement &&
            (type(p.enforcement[amount]) == list ?
             'mps' in p.enforcement[amount] : p.enforcement[amount] == 'mps')))
        ).map(c, c.?requests.orValue([]))
    # Requests for several shares by MPS, which nothing constrains to one GPU.
    - name: severalByMps
      expression: |-
        size(variables.devices.?constraints.orValue([])) > 0 ? [] :
        variables.devices.?requests.orValue([]).filter(r,
          (has(r.exactly) ? [{'name': r.name, 'asks': r.exactly}] :
           r.?firstAvailable.orValue([]).map(s, {'name': dyn(r.name + '/' + s.name), 'asks': s})
          ).exists(a,
            (a.asks.?allocationMode.orValue('') == 'All' || a.asks.?count.orValue(1) > 1) &&
            !a.asks.?adminAccess.orValue(false) &&
            variables.mpsFor.exists(names, size(names) == 0 || r.name in names || a.name in names)
          )).map(r, r.name)
  validations:
    - expression: variables.problems.all(problem, problem == '')
      reason: Invalid
      message: an opaque configuration of the driver has an unknown kind, field or value
      messageExpression: >-
        variables.path + '[' + string(variables.problems.indexOf(
        variables.problems.filter(problem, problem != '')[0])) + '].' +
        variables.problems.filter(problem, problem != '')[0]
    - expression: size(variables.severalByMps) == 0
      reason: Invalid
      message: several shares by MPS may be of several GPUs
      messageExpression: >-
        'request ' + variables.severalByMps[0] + ' asks for several devices, and a ShareConfig ' +
        'demands mps for them, but a container computes in the MPS server of one GPU; request ' +
        'one share with more memory and cores, or keep the shares on one GPU by a constraint ' +
        'with matchAttribute: ' + variables.driver + '/uuid'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ include "carina.fullname" . }}-device-configuration{{ include "carina.annotations" . }}
  labels:
    {{- include "carina.labels" . | nindent 4 }}
spec:
  policyName: {{ include "carina.fullname" . }}-device-configuration
  validationActions: [Deny]
"""


@dataclass(frozen=True, slots=True)
class _Check:
    """Something that can be wrong with a configuration, if nothing before it is."""

    wrong: str
    """A CEL expression that is true if it is."""
    message: str
    """A CEL expression of what is said about it."""


def policy() -> str:
    """Returns the chart's template of the policy and its binding."""
    by_kind = [
        (version, kind, tuple(_checks_of(model, f"{version} {kind}")))
        for version, kinds in ((API_VERSION, KINDS), (nvidia.API_VERSION, nvidia.KINDS))
        for kind, model in kinds.items()
    ]
    lines = [
        line
        for version, kind, checks in by_kind
        for line in (f"{_is(version, kind)} ? (", *_indented(checks), "  '')", ":")
    ]
    for kind, remedy in nvidia.NOT_OFFERED.items():
        said = f"{_PARAMETERS} is {nvidia.API_VERSION}, {kind}, which {remedy}"
        lines += [f"{_is(nvidia.API_VERSION, kind)} ?", f"  {_text(said)} :"]
    lines.append(_text(_unknown_kind()))
    problem = textwrap.indent("\n".join(lines), " " * 10)
    return _POLICY.replace("PROBLEM", problem).replace("VERSION", API_VERSION)


def _unknown_kind() -> str:
    return (
        f"{_PARAMETERS} has another apiVersion or kind than the driver reads; write apiVersion: "
        f"{API_VERSION}, kind: {' or '.join(KINDS)}; or apiVersion: {nvidia.API_VERSION}, kind: "
        f"{' or '.join(nvidia.KINDS)}"
    )


def _is(version: str, kind: str) -> str:
    return (
        f"has(p.apiVersion) && has(p.kind) && p.apiVersion == {_text(version)} && "
        f"p.kind == {_text(kind)}"
    )


def _indented(checks: Sequence[_Check]) -> Iterator[str]:
    for check in checks:
        yield f"  {check.wrong} ?"
        yield f"    {check.message} :"


def _checks_of(model: type[BaseModel], written: str) -> Iterator[_Check]:
    schema = model.model_json_schema()
    yield from _checks(schema, "p", _PARAMETERS, (), schema.get("$defs", {}), written)


def _checks(
    schema: Schema,
    value: str,
    path: str,
    given: tuple[str, ...],
    definitions: Mapping[str, Schema],
    written: str,
) -> Iterator[_Check]:
    """Yields the checks of a value, which exists if all of the conditions `given` hold."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    field = f"{path} of {written}"
    if "x-only-with" in schema:
        (name, chosen), *_ = schema["x-only-with"].items()
        other = f"{value.rpartition('.')[0]}.{name} != {_text(chosen)}"
        wrong = _all(*given, f"{value} != null", other)
        yield _Check(wrong, _text(f"{field}: {schema['x-remedy']}"))
    match schema:
        case {"anyOf": [of_value, {"type": "null"}]}:
            not_null = (*given, f"{value} != null")
            yield from _checks(of_value, value, path, not_null, definitions, written)
        case {"oneOf": _, "discriminator": {"propertyName": name, "mapping": members}}:
            yield _Check(_all(*given, f"type({value}) != map"), _text(f"{field} must be an object"))
            missing = _text(f"{path}.{name} of {written} is missing")
            yield _Check(_all(*given, f"!has({value}.{name})"), missing)
            tags, tag_field = {"enum": list(members)}, f"{path}.{name} of {written}"
            yield from _value_checks(tags, f"{value}.{name}", tag_field, given)
            for tag, member in members.items():
                chosen = (*given, f"{value}.{name} == {_text(tag)}")
                yield from _checks({"$ref": member}, value, path, chosen, definitions, written)
        case {"type": "object", "properties": properties, "additionalProperties": False}:
            yield from _object_checks(schema, value, path, given, written)
            for key, of_property in properties.items():
                has = (*given, f"has({value}.{key})")
                yield from _checks(
                    of_property, f"{value}.{key}", f"{path}.{key}", has, definitions, written
                )
        case _:
            yield from _value_checks(schema, value, field, given)


def _object_checks(
    schema: Schema, value: str, path: str, given: tuple[str, ...], written: str
) -> Iterator[_Check]:
    """Yields the checks of an object without those of its fields."""
    object_message = _text(f"{path} of {written} must be an object")
    yield _Check(_all(*given, f"type({value}) != map"), object_message)
    unknown = f"!(name in [{', '.join(map(_text, schema['properties']))}])"
    yield _Check(
        _all(*given, f"{value}.exists(name, {unknown})"),
        f"{_text(path + '.')} + {value}.filter(name, {unknown})[0] + "
        + _text(f" is not a field of {written}; remove it or correct its name"),
    )
    for required in schema.get("required", ()):
        missing = _text(f"{path}.{required} of {written} is missing")
        yield _Check(_all(*given, f"!has({value}.{required})"), missing)


def _value_checks(
    schema: Schema, value: str, field: str, given: tuple[str, ...]
) -> Iterator[_Check]:
    """Yields the checks of a value without fields of its own."""
    match schema:
        case {"anyOf": [{"enum": words}, {"type": "array", "items": {"enum": listed_words}}]}:
            is_word = f"{value} in [{', '.join(map(_text, words))}]"
            in_list = f"item in [{', '.join(map(_text, listed_words))}]"
            wrong = f"!(type({value}) == list ? {value}.all(item, {in_list}) : {is_word})"
            yield _Check(_all(*given, wrong), _text(f"{field}: {schema['x-remedy']}"))
        case {"type": "null"}:
            remedy = schema.get("x-remedy", "remove it")
            yield _Check(_all(*given, f"{value} != null"), _text(f"{field}: {remedy}"))
        case {"const": constant}:
            yield from _value_checks({"enum": [constant]}, value, field, given)
        case {"enum": allowed}:
            remedy = schema.get("x-remedy", f"write {' or '.join(allowed)}")
            listed = ", ".join(map(_text, allowed))
            yield _Check(_all(*given, f"!({value} in [{listed}])"), _text(f"{field}: {remedy}"))
        case {"type": "boolean"}:
            said = _text(f"{field}: write true or false")
            yield _Check(_all(*given, f"type({value}) != bool"), said)
        case {"type": "integer", "minimum": least, "maximum": most}:
            wrong = f"(type({value}) != int || {value} < {least} || {value} > {most})"
            said = _text(f"{field}: write an integer from {least} to {most}")
            yield _Check(_all(*given, wrong), said)
        case {"type": "quantity", "minimum": least, "x-remedy": remedy}:
            wrong = f"!({_is_quantity(value, least)})"
            yield _Check(_all(*given, wrong), _text(f"{field}: {remedy}"))
        case {"type": "object", "additionalProperties": {"type": "quantity"} as limit}:
            yield _Check(_all(*given, f"type({value}) != map"), _text(f"{field} must be an object"))
            wrong = f"!{value}.all(key, {_is_quantity(f'{value}[key]', limit['minimum'])})"
            yield _Check(_all(*given, wrong), _text(f"{field}: {limit['x-remedy']}"))
        case _:
            raise ValueError(f"{field}: the policy has no rule for the schema {dict(schema)}")


def _is_quantity(value: str, least: int) -> str:
    """A quantity, or a number of bytes; the plugin reads no longer ones."""
    text = (
        f"size({value}) <= {LONGEST_TEXT} && isQuantity({value}) && "
        f"quantity({value}).compareTo(quantity('{least}')) >= 0"
    )
    return f"type({value}) == string ? {text} : type({value}) == int && {value} >= {least}"


def _all(*conditions: str) -> str:
    return " && ".join(conditions)


def _text(text: str) -> str:
    """A string of CEL, whose escapes are those of JSON for all that is written here."""
    return "'" + json.dumps(text)[1:-1].replace("'", "\\'") + "'"
