"""Adaptation of refused requests: the request is repeated without the parts that the endpoint does not support."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inner import (
    Api,
    FilePart,
    ImagePart,
    Message,
    ProviderError,
    Role,
    TextPart,
    ToolCallRequest,
    ToolChoice,
    ToolSpec,
)
from tests.integration.test_provider_errors import refusal
from tests.support.images import PIXEL, encode, gif, jpeg, png, webp
from tests.support.model_endpoint import Raw, Recorded, Say, events, hear, model_endpoint, one_json, provider_of, refuse

pytestmark = pytest.mark.anyio

WIRES = pytest.mark.parametrize("wire", list(Api))
TOOLS = tuple(ToolSpec(name, "", {"type": "object"}) for name in ("good", "bad", "fine"))


IMAGE = Message(Role.USER, (TextPart("Look"), ImagePart(PIXEL, "image/png")))
CALLED = Message.assistant("", [ToolCallRequest("a", "good", {})])


@pytest.mark.parametrize(
    ("message", "request_", "settings", "sent", "then", "note"),
    [
        pytest.param(
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            {"max_tokens": 9},
            {},
            {"max_tokens": 9},
            {"max_tokens": None, "max_completion_tokens": 9},
            "max_completion_tokens",
            id="max_completion_tokens",
        ),
        pytest.param(
            "max_tokens is too large: 9. This model supports at most 4 completion tokens",
            {"max_tokens": 9},
            {},
            {"max_tokens": 9},
            {"max_tokens": None, "max_completion_tokens": None},
            "max_tokens",
            id="max_tokens is too large",
        ),
        pytest.param(
            "Unsupported value: 'temperature' does not support 0.5 with this model.",
            {},
            {"temperature": 0.5},
            {"temperature": 0.5},
            {"temperature": None},
            "temperature",
            id="temperature",
        ),
        pytest.param(
            "body -> stream_options: Extra inputs are not permitted",
            {},
            {},
            {"stream_options": {"include_usage": True}},
            {"stream_options": None},
            "stream_options",
            id="stream_options",
        ),
        pytest.param(
            "Unrecognized request argument supplied: parallel_tool_calls",
            {"tools": TOOLS},
            {"quirks": {"parallel": "send_true"}},
            {"parallel_tool_calls": True},
            {"parallel_tool_calls": None},
            "parallel_tool_calls",
            id="parallel_tool_calls",
        ),
        pytest.param(
            "tool_choice 'none' is not supported",
            {"tools": TOOLS, "tool_choice": ToolChoice.NONE},
            {},
            {"tool_choice": "none"},
            {"tool_choice": None, "tools": None},
            "tool_choice",
            id="tool_choice",
        ),
        pytest.param(
            "tool_choice: type 'tool' is not supported beside thinking",
            {"tools": TOOLS, "tool_choice": "bad"},
            {},
            {"tool_choice": {"type": "function", "function": {"name": "bad"}}},
            {"tool_choice": None},
            "a forced call",
            id="forced call",
        ),
        pytest.param(
            "Unsupported value: 'reasoning_effort' does not support 'max' with this model. Supported: 'none', 'high'.",
            {"thinking": "max"},
            {},
            {"reasoning_effort": "max"},
            {"reasoning_effort": "high"},
            "thinking 'max': high is sent",
            id="too much thinking",
        ),
        pytest.param(
            "Unrecognized request argument supplied: reasoning_effort",
            {"thinking": "low"},
            {},
            {"reasoning_effort": "low"},
            {"reasoning_effort": None},
            "thinking 'low': it is left out",
            id="no thinking",
        ),
        pytest.param(
            "Extra inputs are not permitted: seed", {"seed": 1}, {}, {"seed": 1}, {"seed": None}, "seed", id="seed"
        ),
        pytest.param(
            "top_p is not supported", {"top_p": 0.5}, {}, {"top_p": 0.5}, {"top_p": None}, "top_p", id="top_p"
        ),
        pytest.param(
            "Function tools with reasoning_effort are not supported for this model in /v1/chat/completions. "
            "To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
            {"tools": TOOLS},
            {},
            {"reasoning_effort": None},
            {"reasoning_effort": "none"},
            "reason",
            id="no tools beside reasoning",
        ),
    ],
)
async def test_a_refused_parameter_is_dropped_or_changed_in_later_requests_too(
    message: str, request_: Any, settings: Any, sent: Any, then: Any, note: str
) -> None:
    with model_endpoint([refuse(400, message), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, **settings)
        first = await hear(provider, **request_)
        second = await hear(provider, **request_)
        await provider.aclose()

    bodies = [request.json for request in endpoint.requests]
    assert {name: bodies[0].get(name) for name in sent} == sent
    assert [{name: body.get(name) for name in then} for body in bodies[1:]] == [then, then]
    assert first.text == second.text == "Hi"
    assert len(first.completion.notes) == 1
    assert note in first.completion.notes[0]
    assert second.completion.notes == (first.completion.notes if "forced" in note else ())


@pytest.mark.parametrize(
    ("wire", "answer"),
    [
        pytest.param(
            Api.CHAT, refuse(400, "Invalid schema for function 'bad': no", param="tools[1].function"), id="index"
        ),
        pytest.param(Api.CHAT, refuse(400, "Invalid schema for function 'bad': In context=()"), id="name"),
        pytest.param(Api.RESPONSES, refuse(400, "no", param="tools[1].parameters"), id="param"),
        pytest.param(Api.MESSAGES, refuse(400, "tools.1.custom.input_schema: JSON schema is invalid"), id="Anthropic"),
    ],
)
async def test_a_refused_tool_is_left_out(wire: Api, answer: Raw) -> None:
    with model_endpoint([answer, Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, wire)
        first = await hear(provider, tools=TOOLS)
        await hear(provider, tools=TOOLS)
        await provider.aclose()

    offered = [[tool.get("name") or tool["function"]["name"] for tool in r.json["tools"]] for r in endpoint.requests]
    assert offered == [["good", "bad", "fine"], ["good", "fine"], ["good", "fine"]]
    assert first.completion.notes == ("the endpoint does not accept the tool bad: it is left out",)


@pytest.mark.parametrize(
    ("message", "dialect"),
    [
        (
            "* Request.tools[0].function_declarations[1].parameters.properties: should be non-empty for OBJECT type",
            "gemini",
        ),
        ("tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'root'>", "openai"),
    ],
)
async def test_a_refused_schema_is_converted_to_the_dialect_of_the_endpoint(message: str, dialect: str) -> None:
    with model_endpoint([refuse(400, message), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint)
        heard = await hear(provider, tools=TOOLS)
        await hear(provider, tools=TOOLS)
        await provider.aclose()

    note = f"the endpoint supports only a subset of JSON Schema: tools are described in it ({dialect})"
    assert heard.completion.notes == (note,)
    assert [len(request.json["tools"]) for request in endpoint.requests] == [3, 3, 3]
    has_parameters = ["parameters" in request.json["tools"][0]["function"] for request in endpoint.requests]
    assert has_parameters == [True, dialect != "gemini", dialect != "gemini"]


async def test_a_tool_refused_by_gemini_is_left_out() -> None:
    message = "GenerateContentRequest.tools[0].function_declarations[1].name: Invalid function name"
    with model_endpoint([refuse(400, message), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, quirks={"schema_dialect": "gemini"})
        heard = await hear(provider, tools=TOOLS)
        await provider.aclose()

    assert heard.completion.notes == ("the endpoint does not accept the tool bad: it is left out",)


async def test_tools_above_the_limit_of_the_endpoint_are_left_out() -> None:
    message = "Invalid 'tools': array too long. Expected an array with maximum length 2, but got one with length 3."
    with model_endpoint([refuse(400, message), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint)
        heard = await hear(provider, tools=TOOLS)
        await provider.aclose()

    assert len(endpoint.requests[1].json["tools"]) == 2
    assert heard.completion.notes == ("the endpoint accepts at most 2 tools: the last 1 left out",)


async def test_the_token_limit_is_lowered_to_the_maximum_of_the_endpoint() -> None:
    message = "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for m"
    with model_endpoint([refuse(400, message), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES)
        await hear(provider)
        await hear(provider, max_tokens=99)
        await provider.aclose()

    assert [request.json["max_tokens"] for request in endpoint.requests] == [8192, 4096, 99]


@WIRES
async def test_a_refused_image_is_replaced_by_a_placeholder(wire: Api) -> None:
    with model_endpoint([refuse(400, "This model does not support image input"), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, wire)
        heard = await hear(provider, IMAGE)
        await provider.aclose()

    assert heard.text == "Hi"
    assert PIXEL.encode() in endpoint.requests[0].body
    assert PIXEL.encode() not in endpoint.requests[1].body
    assert b"image/png" in endpoint.requests[1].body


NO_IMAGES = [
    (400, "This model does not support image input"),
    (400, "x/llava-text is not a multimodal model"),
    (400, "At most 0 image(s) may be provided in one prompt."),
    (400, "Invalid content type. image_url is only supported by certain models."),
    (400, "Failed to deserialize the JSON body: messages[0]: unknown variant `image_url`, expected `text`"),
    (400, "for 'role:user' the following must be satisfied[('messages.0.content' : value must be a string)]"),
    (404, "No endpoints found that support image input"),
    (415, "images are not supported"),
    (422, "Input tag 'image' found using 'type' does not match any of the expected tags: 'text'"),
    (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
    (500, "this model is missing data required for image input"),
    (500, "litellm.BadRequestError: Vision is not enabled for this model"),
    (501, "Model does not support images. Please use a model that does."),
    (502, "Provider returned error: image inputs are not supported by this model"),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("status", "message"), NO_IMAGES)
async def test_images_that_the_model_does_not_accept_are_replaced_at_any_status(
    status: int, message: str, stream: bool
) -> None:
    with model_endpoint([refuse(status, message), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint)
        first = await hear(provider, IMAGE, stream=stream)
        second = await hear(provider, IMAGE, first.message(provider), Message.user("And?"), stream=stream)
        await provider.aclose()

    assert (first.text, second.text) == ("Hi", "Hi")
    assert [PIXEL.encode() in sent.body for sent in endpoint.requests] == [True, False, False]
    assert first.completion.notes[0] == "the model does not accept images: they are replaced by descriptions"


@WIRES
@pytest.mark.parametrize("stream", [True, False])
async def test_images_that_are_refused_in_a_response_with_status_200_are_replaced(wire: Api, stream: bool) -> None:
    error = {"error": {"message": "No endpoints found that support image input", "code": 404}}
    with model_endpoint([events(error) if stream else one_json(error), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, wire)
        heard = await hear(provider, IMAGE, stream=stream)
        await provider.aclose()

    assert heard.text == "Hi"
    assert [PIXEL.encode() in sent.body for sent in endpoint.requests] == [True, False]


async def test_an_error_that_only_mentions_images_is_no_refusal_of_images() -> None:
    with model_endpoint(
        [refuse(500, "the container image could not be pulled", {"x-should-retry": "false"})]
    ) as endpoint:
        provider = provider_of(endpoint)
        with pytest.raises(ProviderError, match="container image"):
            await hear(provider, IMAGE)
        await provider.aclose()

    assert len(endpoint.requests) == 1


# Pictures that differ, in the order of a conversation.
PICTURES = tuple(encode(make(size, size)) for size in (2, 3) for make in (png, jpeg, gif, webp))
BAD = PICTURES[5]


def show(*data: str) -> Message:
    return Message(Role.USER, (TextPart("Look"), *(ImagePart(each, "image/png") for each in data)))


def list_shown(sent: Recorded) -> list[int]:
    """Return the positions of the pictures in a request."""
    return [place for place, data in enumerate(PICTURES) if data.encode() in sent.body]


BAD_PICTURES = [
    (400, "Could not process image"),
    (400, "You uploaded an unsupported image. Please make sure your image is valid."),
    (400, "Unable to process input image. Please retry."),
    (400, "The image data you provided does not represent a valid image."),
    (422, "image file is truncated (3 bytes not processed)"),
    (500, "Failed to load image or audio file"),
    (500, "failed to process inputs: image: unknown format"),
    (400, "At least one of the image dimensions exceed max allowed size: 8000 pixels"),
]


@WIRES
@pytest.mark.parametrize(("status", "message"), BAD_PICTURES)
async def test_a_refused_picture_is_replaced_and_no_further_picture(wire: Api, status: int, message: str) -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        refused = refuse(status, message)
        endpoint.answer_to = lambda sent: refused if BAD.encode() in sent.body else Say("Hi")
        provider = provider_of(endpoint, wire)
        first = await hear(provider, show(*PICTURES))
        second = await hear(provider, show(*PICTURES), first.message(provider), Message.user("And?"))
        third = await hear(provider, show(PICTURES[0]))
        await provider.aclose()

    assert (first.text, second.text, third.text) == ("Hi", "Hi", "Hi")
    *_, accepted, later, last = endpoint.requests
    assert list_shown(accepted) == list_shown(later) == [0, 1, 2, 3, 4, 6, 7]
    assert list_shown(last) == [0]
    notes = first.completion.notes
    assert notes[0] == "the endpoint refused an image: it is replaced by a description"
    assert notes[1:] == ("image/png, about 1 kB: the endpoint refused it",)


async def test_several_refused_pictures_without_a_place_cost_only_the_pictures_of_their_request() -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        refused = refuse(400, "Could not process image")
        bad = {PICTURES[1], PICTURES[2]}
        endpoint.answer_to = lambda sent: refused if any(each.encode() in sent.body for each in bad) else Say("Hi")
        provider = provider_of(endpoint)
        first = await hear(provider, show(*PICTURES[:3]))
        await hear(provider, show(*PICTURES))
        await provider.aclose()

    note = "the endpoint refused more than one of 3 images, and did not say which: they are replaced by descriptions"
    assert note in first.completion.notes
    assert list_shown(endpoint.requests[-1]) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("wire", "place"),
    [
        (Api.MESSAGES, "messages.2.content.1.image.source.base64.data: "),
        (Api.RESPONSES, "Invalid 'input[2].content[1].image_url': "),
        (Api.CHAT, "messages[2].content[1].image_url.url: "),
    ],
)
async def test_the_place_in_a_refusal_names_the_picture(wire: Api, place: str) -> None:
    conversation = [show(*PICTURES[:5]), Message.assistant("Hi"), show(*PICTURES[5:])]
    with model_endpoint([Say("Hi")]) as endpoint:
        refused = refuse(400, f"{place}Could not process image")
        endpoint.answer_to = lambda sent: refused if BAD.encode() in sent.body else Say("Hi")
        provider = provider_of(endpoint, wire)
        await hear(provider, *conversation)
        await provider.aclose()

    assert list(map(list_shown, endpoint.requests)) == [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 6, 7]]


async def test_what_is_too_large_for_one_request_does_not_hide_the_pictures_of_others() -> None:
    with model_endpoint([refuse(413, "Request entity too large"), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint)
        await hear(provider, show(PICTURES[0]))
        await hear(provider, show(PICTURES[1]))
        await provider.aclose()

    assert list(map(list_shown, endpoint.requests)) == [[0], [], [1]]


async def test_a_locked_document_does_not_hide_other_documents() -> None:
    locked = FilePart(encode(b"%PDF-1.7 locked"), "application/pdf", "locked.pdf")
    report = FilePart("JVBERi0xLjcK", "application/pdf", "report.pdf")
    with model_endpoint([Say("Hi")]) as endpoint:
        refused = refuse(
            400, "messages.0.content.1.document.source.base64.data: The PDF specified is password protected."
        )
        endpoint.answer_to = lambda sent: refused if locked.data.encode() in sent.body else Say("Hi")
        provider = provider_of(endpoint, Api.MESSAGES)
        heard = await hear(provider, Message(Role.USER, (TextPart("Read"), locked, report)))
        await provider.aclose()

    assert [report.data.encode() in sent.body for sent in endpoint.requests] == [True, True]
    assert heard.completion.notes[0] == "the endpoint refused a document: it is replaced by a description"


@WIRES
@pytest.mark.parametrize(
    "message",
    [
        "Invalid value: 'file'. Supported values are: 'text', 'image_url', 'input_audio' and 'refusal'.",
        "messages.0.content.1: Input tag 'document' found using 'type' does not match any of the expected tags",
        "messages.0.content.1.document.source.base64.data: The PDF specified is password protected.",
        "Unknown parameter: 'input[0].content[1].file_data'.",
    ],
)
async def test_a_refused_document_is_replaced_by_a_placeholder_and_images_stay(wire: Api, message: str) -> None:
    report = FilePart("JVBERi0xLjcK", "application/pdf", "report.pdf")
    asked = Message(Role.USER, (*IMAGE.content, report))
    with model_endpoint([refuse(400, message), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, wire, quirks={"documents": True})
        heard = await hear(provider, asked)
        await provider.aclose()

    assert heard.text == "Hi"
    assert b"JVBERi0xLjcK" in endpoint.requests[0].body
    assert b"JVBERi0xLjcK" not in endpoint.requests[1].body
    assert b"report.pdf, application/pdf" in endpoint.requests[1].body
    assert PIXEL.encode() in endpoint.requests[1].body
    assert "refused a document" in heard.completion.notes[0]
    assert heard.completion.notes[1].startswith("report.pdf, application/pdf")


@WIRES
async def test_documents_and_then_images_are_left_out_of_a_too_large_request(wire: Api) -> None:
    report = FilePart("JVBERi0xLjcK", "application/pdf", "report.pdf")
    asked = Message(Role.USER, (*IMAGE.content, report))
    too_large = refuse(413, "Request entity too large")
    with model_endpoint([too_large, too_large, Say("Hi"), too_large]) as endpoint:
        provider = provider_of(endpoint, wire, quirks={"documents": True})
        heard = await hear(provider, asked)
        with pytest.raises(ProviderError, match="too large"):
            await hear(provider, Message.user("Hi"))
        await provider.aclose()

    shown = [(b"JVBERi0xLjcK" in sent.body, PIXEL.encode() in sent.body) for sent in endpoint.requests]
    assert shown == [(True, True), (False, True), (False, False), (False, False)]
    assert [note for note in heard.completion.notes if "too large" in note] == [
        "the request is too large for the endpoint: documents are replaced by descriptions",
        "the request is too large for the endpoint: images are replaced by descriptions",
    ]


@WIRES
async def test_refused_reasoning_is_left_out_of_the_repeated_request(wire: Api) -> None:
    says = Say("I look.", reasoning="SECRET-THOUGHT")
    with model_endpoint([says, refuse(400, "Invalid signature in thinking block"), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, wire, quirks={"echo_reasoning": "always"})
        heard = await hear(provider)
        again = await hear(provider, Message.user("?"), heard.message(provider), Message.user("?"))
        await provider.aclose()

    assert again.text == "Hi"
    assert b"SECRET-THOUGHT" in endpoint.requests[1].body
    assert b"SECRET-THOUGHT" not in endpoint.requests[2].body


async def test_a_server_error_of_the_endpoint_causes_no_adaptation() -> None:
    broken = refuse(500, "thinking signature reasoning: invalid tools[0]", {"x-should-retry": "false"})
    with model_endpoint([Say("Hm", reasoning="Well"), broken]) as endpoint:
        provider = provider_of(endpoint)
        heard = await hear(provider, tools=TOOLS)
        with pytest.raises(ProviderError):
            await hear(provider, Message.user("?"), heard.message(provider), Message.user("?"), tools=TOOLS)
        await provider.aclose()

    assert len(endpoint.requests) == 2


async def test_required_reasoning_is_sent_back_even_if_empty() -> None:
    message = "Missing `reasoning_content` field in the assistant message: it must be passed back"
    with model_endpoint([refuse(400, message), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint)
        await hear(provider, Message.user("?"), CALLED)
        await provider.aclose()

    assert endpoint.requests[1].json["messages"][1]["reasoning_content"] == ""


EXTRA = {"type": "extra_forbidden", "loc": ["body", "messages", 1, "assistant", "reasoning_content"], "msg": "Extra"}


@pytest.mark.parametrize(
    "refusal_",
    [
        pytest.param(refuse(422, "messages.1.reasoning_content: Extra inputs are not permitted"), id="pydantic"),
        pytest.param(one_json({"object": "error", "message": {"detail": [EXTRA]}}, 422), id="Mistral"),
        pytest.param(one_json({"detail": [EXTRA]}, 422), id="Mistral, bare"),
        pytest.param(
            refuse(
                400,
                "'messages.1' : for 'role:assistant' the following must be satisfied"
                "[('messages.1' : property 'reasoning_content' is unsupported)]",
            ),
            id="Groq",
        ),
        pytest.param(
            one_json({"message": "messages.1.assistant.reasoning_content: property is unsupported"}, 400), id="Cerebras"
        ),
    ],
)
async def test_unsupported_reasoning_is_not_sent_again(refusal_: Raw) -> None:
    with model_endpoint([Say("Hm", reasoning="SECRET-THOUGHT"), refusal_, Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, quirks={"echo_reasoning": "always"})
        conversation = [Message.user("?"), (await hear(provider)).message(provider), Message.user("?")]
        await hear(provider, *conversation)
        await hear(provider, *conversation)
        await provider.aclose()

    assert [b"SECRET-THOUGHT" in request.body for request in endpoint.requests] == [False, True, False, False]


@WIRES
async def test_an_endpoint_that_refuses_every_adaptation_is_an_error(wire: Api) -> None:
    error, endpoint = await refusal(
        refuse(400, "Invalid schema for function 'bad': tools[0] is invalid"), wire, tools=TOOLS
    )

    assert error.status == 400
    assert len(endpoint.requests) == 4


async def test_an_unknown_refusal_causes_no_adaptation() -> None:
    error, endpoint = await refusal(refuse(400, "You are not supported: thinking about images is invalid"), tools=TOOLS)

    assert error.status == 400
    assert len(endpoint.requests) == 1


async def test_a_refusal_of_the_endpoint_behind_a_router_causes_an_adaptation() -> None:
    raw = '{"error": {"message": "temperature: Extra inputs are not permitted", "code": "invalid_parameter"}}'
    refused = refuse(400, "Provider returned error", code=400, metadata={"raw": raw, "provider_name": "x"})
    with model_endpoint([refused, Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, temperature=0.5)
        heard = await hear(provider)
        await provider.aclose()

    assert heard.text == "Hi"
    assert ["temperature" in request.json for request in endpoint.requests] == [True, False]
    assert heard.completion.notes == ("the endpoint does not accept temperature: it is left out",)


@pytest.mark.parametrize(
    "refused",
    [
        one_json({"object": "error", "message": "Unexpected role 'user' after role 'tool'", "code": "3230"}, 400),
        refuse(400, "Unexpected role 'user' after role 'tool'", type="BadRequestError", code=400),
    ],
)
async def test_a_refused_order_of_roles_is_adapted(refused: Raw) -> None:
    result = Message(Role.TOOL, "12", tool_call_id="a")
    conversation = [Message.user("?"), CALLED, result, Message.user("And?")]
    with model_endpoint([refused, Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, preset="mistral")
        heard = await hear(provider, *conversation)
        await hear(provider, *conversation)
        await provider.aclose()

    orders = [[message["role"] for message in request.json["messages"]] for request in endpoint.requests]
    assert orders[0] == ["user", "assistant", "tool", "user"]
    assert orders[1] == orders[2] == ["user", "assistant", "tool", "assistant", "user"]
    assert len(heard.completion.notes) == 1
    assert "directly after a tool result" in heard.completion.notes[0]


async def test_a_too_long_context_behind_a_router_has_its_error_code() -> None:
    raw = '{"error": {"message": "Too much.", "code": "context_length_exceeded"}}'

    error, _ = await refusal(refuse(400, "Provider returned error", code=400, metadata={"raw": raw}))

    assert error.code == "context_length_exceeded"
