"""Do emulated links do what they say? Each part measures, prints and judges."""
