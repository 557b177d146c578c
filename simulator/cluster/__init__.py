"""The cluster: replicas and their lives, deployments, and what befalls them."""
