"""Access to the Kubernetes API, over raw JSON bodies.

Why not the official typed client: a list of 16,000 devices takes its models 3 s and 470 MiB, and
its informer and leader election do not survive an API server that goes away. From the official
package comes what has to agree with kubectl: the reading of kubeconfig files.

    api_resource     which resource: group, version, plural, scope
    body             the raw JSON object, its key and version
    errors           what can go wrong, as types
    connection       where the API server is and how to authenticate, as values
    service_account  a pod's connection
    kubeconfig       the connection in a kubeconfig file
    configuration    which of the two a process uses
    transport        HTTP: one request, one stream
    client           the verbs: get, list, create, replace, patch, delete, watch
    watch            the events of a watch
    store            objects by key, with indexes; what changed between two lists
    reflector        a store that follows the API server
    backoff          how long to wait before the next attempt
    lease            leader election
    event            Events about objects, and when the same again is a series
    event_recorder   writes them, without standing in anybody's way
    timestamp        times as the API writes them
    collector_pause  no garbage collection while a big list is read

Nothing is imported here: a process pays for what it uses.
"""
