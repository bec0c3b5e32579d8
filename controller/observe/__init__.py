"""Objects of Kubernetes as values of the engine, and the mirror that keeps its state up to date.

The modules, from what is read to what is made of it:

    pod, needs, claim, budget      objects, read
    owner, owners, member          to which group a pod says that it belongs
    grouping, minimum, roster      what each group is, and needs
    watched, gone                  what there is now, and what was lately
    tentative                      allocations that are being written, or that nobody uses yet
    standalone                     claims that ask by themselves
    leaving, disruption            who leaves, and who may be made to
    deferral, refusal              what kube-scheduler has refused, and what is put off
    collision                      devices that two claims have
    pod_view, mirror               all of it, as the engine is to see it
"""
