"""What cannot be: proofs that a node, or a cluster, cannot give what claims ask for."""
