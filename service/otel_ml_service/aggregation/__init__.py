"""Align by step and reduce across ranks. Pure: time is an argument, no thread, socket, logger or protobuf."""
