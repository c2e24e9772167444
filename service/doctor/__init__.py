"""Examination of an installation: facts of a process, and findings from them.

What is here reads; nothing is changed but that the API server is asked which rights we
have.
"""
