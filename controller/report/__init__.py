"""What users see of the controller's decisions: statuses, Events and metrics.

What is said is decided by pure functions of state and plan; `status_writer` and `group_events` say
it at a bounded rate, and `cycle_report` has them say it for a cycle.
"""
