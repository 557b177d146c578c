"""Routing: how inference gateways choose a replica, admit, queue and give up. Pure; hosted by the twin and the gateway."""
