"""The proof on a GPU, on a simulated one."""
