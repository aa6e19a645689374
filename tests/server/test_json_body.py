"""Bodies are bounded before anything looks at them."""

from __future__ import annotations

import pytest
from nodeloom.server.errors import BadRequest
from nodeloom.server.json_body import MAX_DEPTH, check_storable, parse


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "Expecting value"),
        (b"{not json", "property name"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b"[" * 100_000 + b"]" * 100_000, "nested"),
        (b"[" * 200 + b"]" * 200, "nested"),
        (b'{"a": 18446744073709551616}', "64 bits"),
        (b'{"a": [1e999]}', "finite"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "digits"),
        (b'{"a": "\\ud83d"}', "surrogate"),
        (b'{"\\udc00": 1}', "surrogate"),
        (b"\xff\xfe\x00", "decode"),
        (b"[" + b"1," * 1_000_000 + b"1]", "values"),
        (("[" + "[]," * 600_000 + "[]]").encode("utf-16"), "values"),
    ],
)
def test_what_cannot_be_stored_and_sent_again_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(body)
    assert why in refused.value.text
    assert refused.value.type == "invalid_json"


def test_a_number_that_conversion_made_is_judged_like_a_submitted_one() -> None:
    check_storable({"cfg": 7.5, "seed": 2**64 - 1})
    for value in (float("nan"), float("inf"), 2**64):
        with pytest.raises(BadRequest):
            check_storable({"3": {"inputs": {"cfg": value}}})


def test_the_rest_is_read_as_it_is() -> None:
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert parse(deep) is not None
    numbers = b'"seed": 18446744073709551615, "low": -9223372036854775808'
    text = b"{" + numbers + b', "t": "\\ud83d\\ude00 \xc3\xbc"}'
    assert parse(text) == {"seed": 2**64 - 1, "low": -(2**63), "t": "\U0001f600 ü"}
    assert parse(b"null") is None
