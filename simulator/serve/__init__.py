"""Serving: the twin in real time, over HTTP."""
