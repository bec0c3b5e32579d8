"""The engine answers vectors of scheduling cases as KAI Scheduler's tables do."""
