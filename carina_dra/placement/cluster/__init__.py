"""What there is: nodes, the devices that they offer, and which of these claims have."""
