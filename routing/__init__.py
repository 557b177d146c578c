"""Routing: how gateways of inference choose a replica, admit, queue and give up. Pure; twin and gateway host it."""
