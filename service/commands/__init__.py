"""The command line: one module for each subcommand, and their inputs.

The rest of the service does not import it.
"""
