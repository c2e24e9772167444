"""References written from the pages, without a line of the product.

What they import is the standard library alone, quantities and label tables included.
Each is one thing after the other in exact numbers, and slow.
"""
