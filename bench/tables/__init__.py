"""Published tables as data: a file each. `./dev bench published` runs them."""
