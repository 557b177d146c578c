"""Peers: what others would do, as policies, from their published algorithms."""
