"""The API server: connections, raw bytes and patches; the only user of ``kubernetes``.

It knows no object's fields: decoding, watch and ledger are not imported here.
"""
