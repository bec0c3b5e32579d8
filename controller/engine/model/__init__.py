"""The values of the engine: what it is told (`snapshot`) and what it answers (`plan`)."""
