"""Methods, one file each; building blocks that they share are in `shared`."""
