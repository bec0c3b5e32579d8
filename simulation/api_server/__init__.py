"""An in-memory Kubernetes API: enough for this project's clients and for kubectl.

It keeps the promises that clients build on: one counter of resource versions, optimistic
concurrency, watches that miss nothing, finalizers, merge and JSON patches. It checks neither
what objects mean nor who asks: validation, admission and RBAC are for the real API server, against
which the same contract tests run (tests/contract/kube).

    failure      a refusal, as the Status that clients get
    resources    what is served
    selectors    label and field selectors
    patch        merge and JSON patches
    event_form   Events in their two API versions
    storage      objects by revision, and the history that watches read
    registry     what a create, update, patch or delete does
    watch        the stream of a watch
    table        what `kubectl get` prints
    discovery    what `kubectl` asks before anything else
    faults       failures on demand, for tests
    route        what a request is about
    api          from a request to its answer
    server       the HTTP around it
"""
