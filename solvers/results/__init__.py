"""What a solve returns, in numbers, in words, and as errors."""
