"""Objects that take the place of arrays of NumPy while it is recorded what a function does to them."""


class StandIn:
    """Has the attributes, methods and operators of an array, but no numbers."""
