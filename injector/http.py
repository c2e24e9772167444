"""The Falcon resource of the webhook, and its mapping of errors."""

from collections.abc import Sequence

import falcon

from injector.admission import Admission, AdmissionObserver
from injector.facts import FallbackStep, PodStep
from injector.mutate import Injector
from injector.review import Review, ReviewError, decode_review, encode_answer

_MAX_DESCRIPTION_LENGTH = 1024


class MutateResource:
    """``POST /mutate``: an AdmissionReview in, the same review answered out.

    Parameters
    ----------
    injector : Injector
    fallback : FallbackStep or None
        Runs before everything else, on a copy of the pod.
    observer : AdmissionObserver
    steps : sequence of PodStep
        Run in order after the fallback and before the injection.
    is_fail_open : bool
        Whether a pod passes unchanged when we fail ourselves; see
        `Admission.answer_fault`.
    """

    def __init__(
        self,
        injector: Injector,
        fallback: FallbackStep | None,
        observer: AdmissionObserver,
        *,
        steps: Sequence[PodStep] = (),
        is_fail_open: bool = False,
    ) -> None:
        self._admission = Admission(
            injector, fallback, observer, steps=steps, is_fail_open=is_fail_open
        )

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Decode, decide, encode."""
        review = decode_review(req.bounded_stream.read())
        req.context.admission_review = review
        answer = self._admission.decide(review)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode_answer(review, answer)

    def answer_fault(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        error: Exception,
        _params: dict[str, object],
    ) -> None:
        """Answer a review that was read before we failed, with its own UID.

        For Falcon's last handler: call it where `is_under_review` says so.
        """
        review: Review = req.context.admission_review
        answer = self._admission.answer_fault(review, error)
        resp.status = falcon.HTTP_200
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode_answer(review, answer)


def is_under_review(req: falcon.Request) -> bool:
    """Say whether `req` carries an admission review that was read."""
    return hasattr(req.context, "admission_review")


def reject_malformed(
    _req: falcon.Request,
    _resp: falcon.Response,
    error: ReviewError,
    _params: dict[str, object],
) -> None:
    """Turn a `ReviewError` into 400 Bad Request."""
    raise falcon.HTTPBadRequest(
        description=str(error)[:_MAX_DESCRIPTION_LENGTH]
    ) from error
