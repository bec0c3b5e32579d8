"""Which node is best, looked for from the best bound on."""
