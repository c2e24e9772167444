"""Warnings in the webhook's answer that change nothing in the pod."""
