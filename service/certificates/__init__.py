"""The HTTPS certificate: from files, or self-signed and rotated.

Neither listeners, commands nor the watched cluster are imported here.
"""
