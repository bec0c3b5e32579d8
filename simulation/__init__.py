"""What stands in for a GPU node and a cluster on a laptop: for demo and tests, not shipped."""
