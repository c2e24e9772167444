"""Composition: command line, settings, application, server, health, metrics, logs."""
