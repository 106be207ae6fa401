"""A package inside."""
