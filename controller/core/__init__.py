"""The pure core: values, laws and guards of one tick. No clock, no I/O, no randomness; `now` is always an argument."""
