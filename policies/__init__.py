"""Decision laws, one file each. Pure: no clock, no I/O, no randomness; what they may see is in the view."""
