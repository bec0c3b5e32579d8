"""The rules of allocation once more, written to be read and not to be fast.

The allocator's results are checked against it. It reads the JSON of a case, as the API has it, and
shares with the allocator only quantities and CEL, which are compared with upstream's by themselves.
"""
