"""The command line: one module for each subcommand that has work of its own."""
