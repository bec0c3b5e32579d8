"""NVML: the one owner of the library, what is read through it, and the words for its numbers."""
