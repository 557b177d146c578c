"""Rehearsing: run a config on the past, see what Governor would have done, and test a config like code."""
