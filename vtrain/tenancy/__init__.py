"""Several training jobs on one cluster: who gets how many nodes when, simulated event by event."""
