"""What queues may have, what is fair, and how they share the time of decisions."""
