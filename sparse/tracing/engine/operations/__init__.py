"""What the operations of array libraries do to arrays that depend on the input, once for all libraries."""
