"""What cannot be: proofs that a node, or a cluster, cannot give what claims ask for.

Each bound names a fleet of docs/performance.md and the question (tests/benchmarks/fleets) that need
it, with the time that the question takes without it, measured on 40 to 100 nodes.
"""
