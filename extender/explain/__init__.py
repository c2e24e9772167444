"""One pod on one snapshot, node by node, with the numbers, as JSON or text.

Wake-ups are not imported here; of tracking, the last answers alone.
"""
