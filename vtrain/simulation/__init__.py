"""The task graph of one plan, played."""
