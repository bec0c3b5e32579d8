"""The cluster: which groups of pods run, where, and at whose cost.

`model` has the values: queues, groups, pods, nodes, a snapshot of them, and the answering plan.
`state` keeps what follows from a snapshot at the cost of what changes, and can undo every change.
`decide` is the judgement. All of it is pure: no clock, no randomness, no I/O.

On a cluster, `observe` keeps the state as objects change, `act` writes what follows from a plan,
and `report` says what was decided and why; `loop` connects them, in one thread.
"""
