"""The kinds of devices that a GPU can be handed out as, a module each."""
