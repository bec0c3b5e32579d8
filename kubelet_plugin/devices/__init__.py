"""The kinds of devices as which a GPU can be allocated, with one module per kind."""
