"""What TensorFlow's operations do to tensors that depend linearly on the input."""
