"""The Falcon application, its middleware, and the listeners that serve it.

The command line is not imported here.
"""
