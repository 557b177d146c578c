"""The fleet twin: a simulated fleet of LLM engines that the same loop drives, in virtual time."""
