"""What every kind of test shares: the lab machines. Their fixtures cost nothing where a test asks for none."""

pytest_plugins = ["lab.pytest_plugin"]
