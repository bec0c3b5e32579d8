"""Who starts, now or as soon as others have left."""
