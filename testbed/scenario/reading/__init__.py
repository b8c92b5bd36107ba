"""The mechanics of reading YAML text into validated values, with places and suggestions, for sections of any kind."""
