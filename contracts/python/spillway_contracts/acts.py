"""An operator's act: what a person asks of the guardrails now, until it expires. JSON.

An act is sent on the subject `spillway.acts.{via}`. The publisher decides about it, and keeps what
it accepts in the bucket `spillway_acts`, signed. An act can only tighten the guardrail file.

{"id": "freeze-7f3a", "act": "freeze", "reason": "incident 42", "expires": "2026-03-01T13:00:00Z",
 "actor": "ada", "issuer": "os", "via": "operator"}

`act` is one of
  freeze               the weights in force stay
  kill                 only local-first is published
  deny                 `denial`: clusters that requests must not reach, as in the guardrail file
  maximum_shift        `parts` of 10 000 that a version may move of a rule; below the file's
  minimum_local_share  `parts` of 10 000 kept local; above the file's
  end                  `ends`: the id of an earlier act, which has no effect from now on

Unknown keys are refused: who does not know what a key asks for must not accept the rest.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from spillway_contracts import ContractError
from spillway_contracts.guardrails import TOTAL, Denial

MAXIMUM_LIFETIME = timedelta(hours=24)
MAXIMUM_BYTES = 16 * 1024
_NEEDS = {"deny": "denial", "maximum_shift": "parts", "minimum_local_share": "parts", "end": "ends"}

Kind = Literal["freeze", "kill", "deny", "maximum_shift", "minimum_local_share", "end"]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Text = Annotated[str, Field(max_length=500, pattern=r"\S")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def to_json(self) -> str:
        """Returns the JSON text. Keys that are None are left out."""
        return self.model_dump_json(exclude_none=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parses the JSON text. Raises ContractError, which lists everything that is wrong."""
        if len(text) > MAXIMUM_BYTES:
            raise ContractError(f"(the message): {len(text)} bytes; must be at most {MAXIMUM_BYTES}")
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ContractError("; ".join(_line(problem) for problem in error.errors())) from error


class Act(_Strict):
    """One act.

    `actor`: the person. `issuer`: who vouches for the actor: a token's issuer, or `os` of a
    command. `via`: the program that sent it, which is also the last part of its subject.
    """

    id: Id
    act: Kind
    reason: Text
    actor: Text
    issuer: Text
    via: Id
    expires: AwareDatetime | None = None
    denial: Denial | None = None
    parts: Annotated[int, Field(ge=1, le=TOTAL)] | None = None
    ends: Id | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        needed = _NEEDS.get(self.act)
        for key in ("denial", "parts", "ends"):
            if (getattr(self, key) is not None) != (key == needed):
                rule = f"must {'be there' if key == needed else 'not be there'}"
                raise ValueError(f"{key}: {rule} when act is {self.act}")
        if (self.expires is None) != (self.act == "end"):
            raise ValueError("expires: required, except when act is end, which has none")
        if self.expires is not None and not 2000 <= self.expires.year < 2200:
            raise ValueError("expires: must lie in the years 2000 to 2199")
        return self

    @property
    def target(self) -> str:
        """What it applies to, as text: a denial's JSON, parts of 10 000, an act's id, or empty."""
        if self.denial is not None:
            return self.denial.model_dump_json(exclude_none=True)
        return str(self.parts) if self.parts is not None else self.ends or ""


class KeptAct(_Strict):
    """An accepted act, as the bucket keeps it.

    `at`: when NATS stored the act. `before`, `after`: the value of what it changes, without it and
    with it, when it was accepted. `ended_by`: the act that ended it, and when.
    """

    act: Act
    at: AwareDatetime
    before: str
    after: str
    ended_by: Act | None = None
    ended_at: AwareDatetime | None = None

    def in_force(self, now: datetime) -> bool:
        """Returns whether it has neither expired nor been ended."""
        return self.ended_by is None and self.expires > now

    @property
    def expires(self) -> datetime:
        """When it expires, in UTC."""
        assert self.act.expires is not None  # an `end` is not kept
        return self.act.expires.astimezone(UTC)


def _line(problem: ErrorDetails) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    return f"{key}: {problem['msg']}" if key else str(problem["msg"]).removeprefix("Value error, ")
