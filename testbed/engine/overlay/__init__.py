"""Relays between a server and its children: beside KVStore and Server, which do not know of them."""
