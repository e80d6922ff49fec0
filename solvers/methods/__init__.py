"""Methods, one file each; families and what they share in folders."""
