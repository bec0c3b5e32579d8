"""The cluster: which groups of pods run, where, and at whose cost.

`engine` is the judgement: from a snapshot to a plan, without I/O and without a clock.

On a cluster, `observe` keeps the engine's state as objects change, `act` writes what follows from a
plan, and `report` says what was decided and why; `run.loop` connects them, in one thread.
"""
