"""What can go wrong between a program and the service: one class per way to react."""


class ServiceError(Exception):
    """The service refused, failed or could not be reached; see the subclasses.

    ``status``: the HTTP status, none where no answer came. ``code``: a word for programs. ``message``: the service's
    own sentence. ``retry_after``: seconds after which the service asks to be tried again, where it said so.
    """

    advice = ""

    def __init__(self, status: int | None, code: str, message: str, *, retry_after: float | None = None) -> None:
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after
        shown = code if status is None else f"{status} {code}"
        super().__init__(f"{message} ({shown})" + (f". {self.advice}" if self.advice else ""))


class InvalidRequest(ServiceError):
    """The service does not accept such a request; repeating it does not help."""


class Unauthorized(ServiceError):
    """No key, a wrong one or a revoked one."""

    advice = "Make a key with `sketchbandits keys create NAME --role client` and give it as Client(key=...)."


class Forbidden(ServiceError):
    """The key is valid, but its role or its bandits do not allow this."""

    advice = (
        "Arms and bandits are changed with a key that was made with `--role admin`, and a key that was made with "
        "`--bandit` is for those bandits alone."
    )


class NotFound(ServiceError):
    """No such bandit, or no such address: client.bandits() lists those there are."""

    advice = "See client.bandits() for the bandits there are, and whether url is the service's."


class UnknownDecision(NotFound):
    """The service never made this decision, or made it for another bandit."""

    advice = "Rewards go to the bandit that decided, with the decision_id that it returned."


class Conflict(ServiceError):
    """Something else exists already: another reward, an arm or bandit of that name, a key with another request.

    ``code`` is "retracted" where an administrator has taken back the decision's reward.
    """


class Unavailable(ServiceError):
    """No answer, or none that is worth more attempts now: overload, restart, network, a key's limit."""

    advice = "Try again later; a decision with the same key and a reward may be repeated safely."


class Unanswered(Unavailable):
    """A change of arms or bandits was sent and its answer was lost: whether it was carried out is not known."""

    advice = "Check with client.arms() or client.bandits() whether it was carried out before you repeat it."


class BadAnswer(ServiceError):
    """What came back is no answer of the service."""

    advice = "Is url the address of the service, and nothing between that answers in its place?"


BY_STATUS: dict[int, type[ServiceError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: InvalidRequest,
    409: Conflict,
    413: InvalidRequest,
    415: InvalidRequest,
    422: InvalidRequest,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}
