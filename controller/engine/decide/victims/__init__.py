"""Who moves or goes for others, and who is safe."""
