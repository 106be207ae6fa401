"""Checks of bearer tokens that ask an authorization server, or its keys. Each is a function for `auth=`."""
