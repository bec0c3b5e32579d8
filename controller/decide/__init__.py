"""The judgement: from the state of a cluster to a plan."""
