"""The methods, one file each; families and what several of them share in folders."""
