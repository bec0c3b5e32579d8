"""Objects of Kubernetes as values of the engine, and the mirror that keeps its state up to date.

The modules, from what is read to what is made of it:

    pod, needs, claim, budget      objects, read
    pod_affinity, spread, volume   what of pods and volumes chooses nodes, read
    template                       parts of objects, read
    declared_queues                Queues, and who may use them
    owner, owners, member          to which group a pod says that it belongs
    grouping, minimum              what each group is, and needs
    named_groups, group_registry   which pods are in which group, kept up to date
    watched, gone                  what there is now, and what was lately
    tentative                      allocations that are being written, or that nobody uses yet
    standalone                     claims that ask by themselves
    leaving, disruption            who leaves, and who may be made to
    deferral, refusal              what kube-scheduler has refused, and what is put off
    backoff                        what is held back since its start was refused
    set_aside                      objects that the controller fails at
    alarms                         when something is to be looked at again
    collision                      devices that two claims have
    pod_view, mirror               all of it, as the engine is to see it
"""
