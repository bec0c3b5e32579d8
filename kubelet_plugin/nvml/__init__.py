"""NVML: the owner of the library, what is read through it, and the names for its constants."""
