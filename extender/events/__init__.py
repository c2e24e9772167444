"""Events on objects of the cluster: what no answer to a caller can tell people.

Above the other parts of the extender; none of them knows it.
"""
