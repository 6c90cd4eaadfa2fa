"""What the models of all YAML files of the lab have in common."""

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Model(BaseModel):
    """Base model: instances are frozen and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def within(low: float, high: float) -> AfterValidator:
    """Returns a validator of numbers from `low` to `high`, with the emulator's words."""
    return _checked(lambda value: low <= value <= high, f"{low} to {high}")


def above_zero() -> AfterValidator:
    """Returns a validator of finite numbers above 0, with the emulator's words."""
    return _checked(lambda value: 0 < value < float("inf"), "a number above 0")


def one_of(*allowed: str) -> AfterValidator:
    """Returns a validator of texts from a list, with the emulator's words."""

    def check(value: str) -> str:
        if value not in allowed:
            raise ValueError(f'"{value}"; allowed: {", ".join(allowed)}')
        return value

    return AfterValidator(check)


def _checked(sound: Callable[[float], bool], words: str) -> AfterValidator:
    def check(value: float) -> float:
        if not sound(value):
            raise ValueError(f"{value:.15g}; allowed: {words}")
        return value

    return AfterValidator(check)
