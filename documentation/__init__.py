"""The documentation: the reference, which is generated from the code, and the site of all pages.

`reference` makes docs/reference; `python -m deploy.generate` writes it. `site` is a hook of MkDocs.
"""
