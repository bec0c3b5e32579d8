"""The plugin's side of carina-sharing: what it is told, what it reports, and what follows."""
