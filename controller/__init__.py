"""Queues, gangs, fair share and victims: the cluster controller."""
