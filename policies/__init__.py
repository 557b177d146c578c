"""Decision laws, and their parts. Pure: no clock, no I/O, no randomness; what they may see is in the view."""
