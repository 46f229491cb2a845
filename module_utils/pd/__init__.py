"""The brain: plain typed Python that decides; the modules in library/ do the I/O around it."""
