"""An in-memory Kubernetes API: enough for this project's clients and for kubectl.

It keeps the guarantees that clients rely on: one counter of resource versions, optimistic
concurrency, watches that miss no event, finalizers, merge and JSON patches. It has no validation
and no RBAC; admission is a function that the caller may give. The contract tests
(tests/contract/kube) run on it and on the real API server.

    failure      errors as the Status that clients get
    resources    the resources that are served
    selectors    label and field selectors
    patch        merge and JSON patches
    event_form   Events in their two API versions
    storage      objects by revision, and the history for watches
    registry     create, update, patch, delete
    watch        the stream of a watch
    table        the tables that `kubectl get` prints
    discovery    the groups, versions and resources for clients to discover
    faults       injected failures, for tests
    route        the resource, object and verb of a request
    api          answers requests
    server       serves the API over HTTP
"""
