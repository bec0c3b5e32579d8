"""NVML: the owner of the library, the readers, and the names of its constants."""
