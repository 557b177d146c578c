"""Simulate: the loop on the fleet twin, seed by seed, scored against what else could have been done."""
