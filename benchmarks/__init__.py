"""What is measured: against peers, against recordings, against the clock."""
