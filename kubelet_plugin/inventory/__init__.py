"""What the node's GPUs are and how they are: values, their changes, and the thread that looks."""
