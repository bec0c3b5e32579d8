"""The allocator: which devices a claim gets."""
