"""From the rows of a profile to constants, a learned residual and their held-out errors."""
