"""What a failed solve has failed by, looked for after the failure only."""
