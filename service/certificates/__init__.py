"""The HTTPS certificate: from files, or self-signed and rotated.

Neither listeners nor commands are imported here.
"""
