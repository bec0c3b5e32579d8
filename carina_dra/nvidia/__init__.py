"""The NVIDIA driver of a node: where it is installed, and its library NVML.

driver_location  where products install it
driver_search    which of these places has it
rooted_path      paths below the root of another file system
loaded_driver    what the kernel says of it
nvml_failure     a call that did not succeed
nvml_library     the one owner of the library in a process
"""
