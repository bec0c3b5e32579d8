"""Which groups run, when, where and at whose cost: from a snapshot to a plan. No I/O, no clock.

`model` has the values, `state` what decisions need of a snapshot, `decide` a cycle, `simulate` many
cycles in virtual time. `files` reads and writes values as text; `explain` says why a group waits,
and `free` what is free.
"""
