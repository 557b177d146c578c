"""Watching: the pages that engines, gateways and Kubernetes show, and the Prometheus that scrapes them."""
