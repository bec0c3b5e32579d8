"""The loop of the controller: watches and outcomes go in, decisions come out."""
