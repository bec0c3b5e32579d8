"""The objects of scheduling.carina.dev: their types, their schemas and their reference.

The types are the one source: CustomResourceDefinitions and docs/api.md are generated from their
fields, docstrings and rules.
"""
