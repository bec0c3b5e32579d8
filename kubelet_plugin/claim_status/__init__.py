"""What users are told of the devices of their claims: health, status and Events."""
