"""carina-sharing, part by part."""
