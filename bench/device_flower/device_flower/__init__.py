"""Flower's side of bench/device.py."""
