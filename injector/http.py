"""The Falcon resource of the webhook, and its mapping of errors."""

from typing import Final

import falcon

from injector.admission import Admission, never_late
from injector.review import Review, ReviewError, decode_review, encode_answer

_MAX_DESCRIPTION_LENGTH: Final = 1024


class MutateResource:
    """``POST /mutate``: an AdmissionReview in, the same review answered out."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Decode, decide, encode."""
        review = decode_review(req.bounded_stream.read())
        req.context.admission_review = review
        deadline = getattr(req.context, "deadline", None)
        answer = self._admission.decide(
            review, never_late if deadline is None else deadline.check
        )
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode_answer(review, answer)

    def answer_fault(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        error: Exception,
        *,
        is_late: bool = False,
    ) -> None:
        """Answer a review that was read before we failed, with its own UID.

        For Falcon's last handler: call it where `is_under_review` says so, and with
        `is_late` where the work was only ended by its deadline.
        """
        review: Review = req.context.admission_review
        answer = self._admission.answer_fault(review, error, is_late=is_late)
        resp.status = falcon.HTTP_200
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode_answer(review, answer)


def is_under_review(req: falcon.Request) -> bool:
    """Whether `req` carries an admission review that was read."""
    return hasattr(req.context, "admission_review")


def reject_malformed(
    _req: falcon.Request,
    _resp: falcon.Response,
    error: ReviewError,
    _params: dict[str, object],
) -> None:
    """Turn a `ReviewError` into 400 Bad Request."""
    error.__traceback__ = None  # else the body stays until the garbage collector comes
    raise falcon.HTTPBadRequest(
        description=str(error)[:_MAX_DESCRIPTION_LENGTH]
    ) from error
