"""The test kit: fake agents, networks, faults and virtual time."""
