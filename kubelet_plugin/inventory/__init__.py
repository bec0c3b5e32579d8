"""The node's GPUs: their facts and state, their changes, and the thread that reads them."""
