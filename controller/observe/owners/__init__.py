"""The kinds of owners whose pods belong together, one a module, and all of them in `types`.

    kind             what starts together                            where that is said
    Job              one pod                                         nowhere: nothing is read
    StatefulSet      one pod, all replicas if it is Parallel         spec
    JobSet           all pods of the jobs that wait for no others    spec
    LeaderWorkerSet  a replica; its leader where workers wait for it spec; size also on its pods
    PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob, MPIJob
                     `minAvailable` pods, or all replicas            spec
    RayCluster       the head and all replicas of worker groups      spec
    PodGroup (scheduling.k8s.io)
                     all pods that there are                         spec, and its pods

An annotation on the pods comes before all of these. Pods of any other owner, such as a
ReplicaSet, start one by one.
"""
