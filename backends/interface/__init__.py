"""What a backend is, part by part."""
