"""What a release consists of, made here."""
