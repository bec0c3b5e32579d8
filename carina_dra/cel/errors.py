"""The errors of expressions: this package raises no others."""


class CelError(Exception):
    """An expression is invalid, or cannot be evaluated."""


class CompileError(CelError):
    """The text is not a valid expression; the message has the line and column."""


class EvaluationError(CelError):
    """The expression has no value for this device."""


class BudgetExceededError(EvaluationError):
    """The evaluation exceeds the cost limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")
