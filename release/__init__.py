"""What a release consists of, and how it is made: `python -m release DIR` (docs/release.md)."""
