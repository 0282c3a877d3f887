"""JSON that gives back exactly the Python and NumPy values that were put in, by tags instead of pickle."""

import base64
import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

_TAG = "__strop__"


def encode(value: Any, where: str) -> Any:
    """Returns a JSON-able form of a value. Raises TypeError naming `where` for a type that has no exact form."""
    match value:
        case np.generic() | np.ndarray():
            return _encode_array(value, where)
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [encode(item, f"{where}[{index}]") for index, item in enumerate(value)]
        case dict() if _is_plain(value):
            return {key: encode(item, f"{where}.{key}") for key, item in value.items()}
        case dict():
            pairs = [[encode(key, where), encode(item, f"{where}.{key}")] for key, item in value.items()]
            return {_TAG: "dict", "value": pairs}
        case tuple():
            return {_TAG: "tuple", "value": [encode(item, f"{where}[{index}]") for index, item in enumerate(value)]}
        case bytes():
            return {_TAG: "bytes", "value": base64.b64encode(value).decode("ascii")}
        case dt.datetime() | dt.date() | dt.time():
            return {_TAG: type(value).__name__, "value": value.isoformat()}
        case Decimal():
            return {_TAG: "Decimal", "value": str(value)}
    raise TypeError(
        f"{where} must be made of numbers, text, bytes, dates, lists, tuples, dicts or NumPy arrays to be kept in "
        f"a checkpoint, got {type(value).__name__}: convert it in the data source"
    )


def decode(value: Any) -> Any:
    """Returns the value that `encode` was given."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: decode(item) for key, item in value.items()}
    if value[_TAG] in ("array", "scalar"):
        return _decode_array(value)
    return _DECODERS[value[_TAG]](value["value"])


def _is_plain(value: dict[Any, Any]) -> bool:
    return _TAG not in value and all(type(key) is str for key in value)


def _encode_array(value: Any, where: str) -> dict[str, Any]:
    array = np.asarray(value)
    if array.dtype.hasobject:
        return {_TAG: "objects", "value": [list(array.shape), encode(array.ravel().tolist(), where)]}
    return {
        _TAG: "scalar" if isinstance(value, np.generic) else "array",
        "value": base64.b64encode(array.tobytes()).decode("ascii"),
        "dtype": array.dtype.str,
        "shape": list(array.shape),
    }


def _decode_array(value: dict[str, Any]) -> Any:
    flat = np.frombuffer(base64.b64decode(value["value"]), dtype=np.dtype(value["dtype"]))
    array = flat.reshape(value["shape"]).copy()
    return array[()] if value[_TAG] == "scalar" else array


def _decode_objects(value: list[Any]) -> Any:
    shape, items = value
    array = np.empty(len(items), dtype=object)
    for index, item in enumerate(items):
        array[index] = decode(item)
    return array.reshape(shape)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda pairs: {decode(key): decode(item) for key, item in pairs},
    "tuple": lambda items: tuple(decode(item) for item in items),
    "bytes": base64.b64decode,
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "Decimal": Decimal,
    "objects": _decode_objects,
}
