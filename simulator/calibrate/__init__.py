"""Fits of the engine model: from a request log by simulation in the loop, from a recording by its intervals."""
