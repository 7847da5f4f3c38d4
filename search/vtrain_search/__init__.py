"""Search for the lowest-loss pre-training design a budget can buy."""
