"""Proves on a machine with a GPU what tests without one can only simulate: `make gpu-proof`.

It needs no Kubernetes, and runs the product's own code on the driver that is installed.

    finding          a statement and what came of it; a fact, which is recorded and not judged
    report           all of it, as JSON and as a text

These are pure. The rest acts:

    need             what a part needs of the machine, and why it is missing
    ptx              the kernels that run on the GPU
    cuda             CUDA's driver API
    cuda_program     the process that computes, as the process of a tenant does
    client           that process as a part uses it
    own_cgroups      the cgroups that are made for it
    own_folder       the folder that is made for it
    sharing_process  carina-sharing, as the kubelet plugin uses it
    bench            what a part works with
    parts            what is proven
    part_process     the process of one part
    main             runs parts, each within its time, and removes what they made
"""
