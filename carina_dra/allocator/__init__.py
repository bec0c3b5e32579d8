"""The allocator: which devices a claim gets, and on which node best.

    cluster = Cluster()                        # fed with nodes, slices, claims as they change
    placer = Placer(cluster, Policy(), new_share_id=...)
    placer.place(Question.of([claim], classes, cluster.features))

For one node, `gather` its pools, `check` the claims and `allocate`. All of it is pure.
"""
