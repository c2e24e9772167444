"""The API server: connections, raw bytes and patches; the only user of ``kubernetes``.

It knows the fields of a Lease alone: decoding, watch and ledger are not imported here.
"""
