"""The test of a traced matrix, whatever library its function is written in."""
