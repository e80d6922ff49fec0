"""What ATen calls do to tensors that depend linearly on the input."""
