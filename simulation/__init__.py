"""What stands in for a GPU node and a cluster where there is none: for the demo and the fast tests, not shipped."""
