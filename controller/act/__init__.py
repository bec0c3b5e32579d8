"""What follows from a plan for the API: statuses of claims, pods without their gate, evictions."""
