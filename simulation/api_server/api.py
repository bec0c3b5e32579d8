"""Answers requests, without HTTP: routes, parameters, the form of lists."""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from carina_dra.kube.api_resource import ApiResource
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import JsonPatch, MergePatch, Patch
from simulation.api_server import discovery, watch
from simulation.api_server.event_form import as_served
from simulation.api_server.failure import Failure, bad_request, no_such_path, not_allowed, too_large
from simulation.api_server.faults import Faults
from simulation.api_server.registry import DeleteOptions, Registry
from simulation.api_server.resources import SERVED, ServedResource
from simulation.api_server.route import Request, Route, parse_path, verb_of
from simulation.api_server.selectors import Predicate, selector
from simulation.api_server.storage import Storage
from simulation.api_server.table import table

_DEFAULT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_DEFAULT_WATCH_SECONDS = 1800.0
_BOOKMARK_SECONDS = 60.0  # the real API server's value
_NO_DRY_RUN = "the embedded API has no dry run"


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and a JSON body."""

    code: int
    body: Body
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text: for health checks, and for paths outside of every group that is served."""

    content: str
    code: int = 200


@dataclass(frozen=True, slots=True)
class Stream:
    """A response of lines, each sent as soon as it is there."""

    lines: Iterator[bytes]


Response: TypeAlias = Answer | Text | Stream
Admission: TypeAlias = Callable[[ApiResource, Body], Body]
"""Gives the object to store for one that is to be created, as mutating admission does."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A request and the status code of its answer."""

    verb: str
    route: Route
    code: int


class Api:
    """An API with its objects. `on_request` is called after every request for a resource."""

    def __init__(
        self,
        *,
        on_request: Callable[[Observed], None] = lambda _: None,
        admit: Admission = lambda _, body: body,
    ) -> None:
        self.storage = Storage()
        self.faults = Faults()
        self._registry = Registry(self.storage)
        self._on_request = on_request
        self._admit = admit
        namespaces = SERVED[0]
        for name in _DEFAULT_NAMESPACES:
            self._registry.create(namespaces, "", {"metadata": {"name": name}})

    def end_streams(self) -> None:
        """Ends all open watches, as a server that stops does."""
        self.faults.end_streams()
        self.storage.wake()

    def handle(self, request: Request) -> Response:
        """The answer to a request, errors included."""
        if request.path.strip("/") in ("healthz", "readyz", "livez"):
            return Text("ok")
        document = discovery.document(request.path)
        if document is not None:
            return Answer(200, document)
        route = parse_path(request.path)
        if route is None:
            return _nothing_at(request.path)
        verb = verb_of(request, route)
        try:
            self.faults.check(verb, route.served.resource.plural)
            response = self._answer(verb, route, request)
        except Failure as failure:
            response = Answer(failure.code, failure.status(), failure.retry_after)
        code = 200 if isinstance(response, Stream) else response.code
        self._on_request(Observed(verb, route, code))
        return response

    def _answer(self, verb: str, route: Route, request: Request) -> Response:
        if "dryRun" in request.query:
            raise bad_request(_NO_DRY_RUN)
        match verb:
            case "get":
                body = self._registry.get(route.served, route.key)
                return Answer(200, _as_table(request, route.served, [body]) or body)
            case "list":
                return Answer(200, self._list(route, request))
            case "watch":
                return self._watch(route, request)
            case "create":
                return Answer(201, self._create(route, request))
            case "update" | "patch" if route.name:
                return Answer(200, self._change(verb, route, request))
            case "delete":
                remaining = self._registry.delete(route.served, route.key, _options(request))
                return Answer(200, remaining or _SUCCESS)
            case "deletecollection":
                matches = _selector(route, request)
                self._registry.delete_all(route.served, route.namespace, matches)
                return Answer(200, _SUCCESS)
            case _:
                raise not_allowed()

    def _create(self, route: Route, request: Request) -> Body:
        body = _body(request)
        match route.subresource:
            case "" if not route.name:
                admitted = self._admit(route.served.resource, body)
                return self._registry.create(route.served, route.namespace, admitted)
            case "binding":
                self._registry.bind(route.key, body)
                return _SUCCESS
            case "eviction":  # there are no PodDisruptionBudgets to respect
                options = _delete_options(body.get("deleteOptions") or {}, request)
                self._registry.delete(route.served, route.key, options)
                return _SUCCESS
            case _:
                raise not_allowed()

    def _change(self, verb: str, route: Route, request: Request) -> Body:
        served, key = route.served, route.key
        if verb == "update":
            return self._registry.update(served, key, _body(request), route.subresource)
        return self._registry.patch(served, key, _patch(request), route.subresource)

    def _list(self, route: Route, request: Request) -> Body:
        served, matches = route.served, _selector(route, request)
        limit = int(request.query.get("limit", "0"))
        with self.storage.transaction():
            revision, after = self.storage.revision, None
            if token := request.query.get("continue"):
                revision, after = _parse_token(token)
            objects = self.storage.objects(served.storage, revision)
        chosen = [
            (key, body)
            for key, body in objects
            if (after is None or key > after)
            and route.namespace in ("", key.namespace)
            and matches(body)
        ]
        metadata: Body = {"resourceVersion": str(revision)}
        if limit and len(chosen) > limit:
            metadata["continue"] = _token(revision, chosen[limit - 1][0])
            metadata["remainingItemCount"] = len(chosen) - limit
            chosen = chosen[:limit]
        items = [as_served(served, body) for _, body in chosen]
        return _as_table(request, served, items, metadata) or {
            "kind": f"{served.resource.kind}List",
            "apiVersion": served.resource.api_version,
            "metadata": metadata,
            "items": [_without_kind(item) for item in items],
        }

    def _watch(self, route: Route, request: Request) -> Stream:
        served, query = route.served, request.query
        version = query.get("resourceVersion", "")
        revision = int(version) if version not in ("", "0") else None
        if revision is not None and revision > self.storage.revision:
            raise too_large(revision, self.storage.revision)
        initial = query.get("sendInitialEvents") == "true"
        bookmarks = query.get("allowWatchBookmarks") == "true"
        options = watch.WatchOptions(
            namespace=route.namespace,
            matches=_selector(route, request),
            revision=None if initial else revision,
            seconds=float(query.get("timeoutSeconds") or _DEFAULT_WATCH_SECONDS),
            bookmark_every=_BOOKMARK_SECONDS if bookmarks else None,
            mark_initial=initial and bookmarks,
        )
        generation = self.faults.generation

        def show(body: Body) -> Body:
            body = as_served(served, body)
            return _as_table(request, served, [body]) or body

        def is_over() -> bool:
            return self.faults.generation != generation

        return Stream(watch.events(self.storage, served, options, show, is_over))


def _nothing_at(path: str) -> Answer | Text:
    """A Status within the groups that are served, and plain text elsewhere."""
    match path.strip("/").split("/"):
        case ["api", *_]:
            return Answer(404, no_such_path().status())
        case ["apis", group, *_] if group in {served.resource.group for served in SERVED}:
            return Answer(404, no_such_path().status())
        case _:
            return Text("404 page not found\n", 404)


_SUCCESS: Body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def _selector(route: Route, request: Request) -> Predicate:
    query = request.query
    return selector(
        query.get("labelSelector", ""), query.get("fieldSelector", ""), route.served.fields
    )


def _body(request: Request) -> Body:
    try:
        body = json.loads(request.content)
    except ValueError as error:
        raise bad_request(f"the body cannot be decoded: {error}") from error
    if not isinstance(body, dict):
        raise bad_request("the body is not an object")
    return body


def _patch(request: Request) -> Patch:
    match request.headers.get("content-type", ""):
        case "application/merge-patch+json":
            return MergePatch(_body(request))
        case "application/json-patch+json":
            return JsonPatch(json.loads(request.content))
        case other:
            message = f"the body of the request was in an unknown format: {other}"
            raise Failure(415, "UnsupportedMediaType", message)


def _options(request: Request) -> DeleteOptions:
    return _delete_options(json.loads(request.content or b"{}"), request)


def _delete_options(options: Body, request: Request) -> DeleteOptions:
    if options.get("dryRun"):
        raise bad_request(_NO_DRY_RUN)
    conditions = options.get("preconditions") or {}
    seconds = options.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
    return DeleteOptions(
        uid=conditions.get("uid"),
        resource_version=conditions.get("resourceVersion"),
        grace_period_seconds=None if seconds is None else int(seconds),
    )


def _as_table(
    request: Request, served: ServedResource, items: list[Body], metadata: Body | None = None
) -> Body | None:
    """The objects as a Table where the client accepts one, as kubectl does; else None."""
    if "as=Table" not in request.headers.get("accept", ""):
        return None
    return table(served, items, metadata or {})


def _without_kind(item: Body) -> Body:
    """An item of a list: without `apiVersion` and `kind`, which the list has."""
    return {name: value for name, value in item.items() if name not in ("apiVersion", "kind")}


def _token(revision: int, after: ObjectKey) -> str:
    content = json.dumps([revision, after.namespace, after.name])
    return base64.urlsafe_b64encode(content.encode()).decode()


def _parse_token(token: str) -> tuple[int, ObjectKey]:
    try:
        revision, namespace, name = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    return int(revision), ObjectKey(namespace, name)
