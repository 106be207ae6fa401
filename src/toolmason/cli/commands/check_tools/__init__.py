"""Commands that check and compare tools."""
