"""What host and e2e tests share: a scratch copy of the project, inventories for lab machines, playbooks run through ansible-runner."""
