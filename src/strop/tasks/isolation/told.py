"""What an exception says, as text. Runs in children too; imports the standard library alone."""

import traceback

_MAX_TOLD = 20_000
"""Characters of an error's message, and of its traceback."""


def told(error: BaseException) -> str:
    """The exception's message, and its traceback behind it, without the frame that caught it; both cut where long.

    Of an exception that cannot say what it is, only the type is told.
    """
    kind = type(error).__name__
    try:
        text = (
            f"the call ended with SystemExit({error.code!r})" if isinstance(error, SystemExit) else f"{kind}: {error}"
        )
        if error.__traceback__ is not None:
            error = error.with_traceback(error.__traceback__.tb_next)
        return f"{text[:_MAX_TOLD]}\n{''.join(traceback.format_exception(error))[:_MAX_TOLD]}"
    except BaseException as second:  # noqa: BLE001 - code of the user's again, which may raise anything
        return f"{kind}, whose text cannot be had: {type(second).__name__}"
