"""Access to the Kubernetes API, over raw JSON bodies.

Why not the official typed client: its models take 3 s and 470 MiB for a list of 16,000 devices, and
its informer and leader election do not survive an API server that goes away. The official package
is used where Carina has to agree with kubectl: to read kubeconfig files.

    api_resource     resources: group, version, plural, scope
    body             the raw JSON object, its key and version
    errors           failures as types
    connection       where the API server is and how to authenticate, as values
    service_account  a pod's connection
    kubeconfig       the connection in a kubeconfig file
    configuration    which of the two a process uses
    transport        HTTP: one request, one stream
    client           the verbs: get, list, create, replace, patch, delete, watch
    watch            the events of a watch
    store            objects by key, with indexes; what changed between two lists
    reflector        objects followed at the API server, with or without a store of them
    backoff          how long to wait before the next attempt
    lease            leader election
    event            Events about objects, and when repetitions become a series
    event_recorder   writes Events without delaying the caller
    timestamp        times as the API writes them
    collector_pause  no garbage collection while a big list is read

Nothing is imported here, so that a process loads only the modules that it uses.
"""
