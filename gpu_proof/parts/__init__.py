"""What is proven: a module for each part."""
