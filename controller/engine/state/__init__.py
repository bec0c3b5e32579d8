"""What follows from a snapshot, kept at the cost of what changes; every change can be undone."""
