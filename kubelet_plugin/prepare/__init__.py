"""What claims need on the node: what is wanted, what is there, and how one becomes the other."""
