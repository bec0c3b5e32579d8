"""Groups one after the other: what of each is tried at once, and what is undone."""
