"""What can go wrong with an expression: nothing else ever leaves this package."""


class CelError(Exception):
    """An expression is wrong, or cannot be evaluated."""


class CompileError(CelError):
    """The text is no expression that the environment knows; the message says where it is wrong."""


class EvaluationError(CelError):
    """The expression has no value for this device."""


class BudgetExceededError(EvaluationError):
    """The evaluation would take too long."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")
