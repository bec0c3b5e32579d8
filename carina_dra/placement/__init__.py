"""Placement over many nodes: the cluster's state, and the best node for claims.

    cluster = Cluster()
    feed = Feed(cluster)  # receives nodes, slices, claims, classes and taint rules as they change
    placer = Placer(cluster, Policy(), new_share_id=...)
    placer.place(PlacementRequest.of([claim], feed.classes, cluster.features))

`cluster` says what there is, `bounds` what cannot be, and `choice` which node is best. There is no
I/O in them and no clock.
"""
