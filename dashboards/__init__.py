"""What Grafana and Prometheus are given: a dashboard built by code, and alert rules. Tested against the catalogue."""
