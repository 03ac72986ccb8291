"""The server of the official conformance suite's server scenarios, over stdio: what the gateway has behind it.

The suite names tools, resources and prompts, and says what each of them returns. Questions are asked in the way of the
revision that the host speaks: within the call up to 2025-11-25, by `InputRequiredResult` since 2026-07-28.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import mcp_types as wire
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from tests.conformance.feature_tasks import TOOLS, FeatureTasks

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
SECONDS = 0.05
Context = ServerRequestContext[Any, Any]
Answer = wire.CallToolResult | wire.InputRequiredResult | dict[str, Any]


def text(value: str) -> wire.TextContent:
    return wire.TextContent(text=value)


def form(message: str, properties: Mapping[str, Any], *required: str) -> wire.ElicitRequest:
    schema = {"type": "object", "properties": dict(properties), "required": list(required)}
    return wire.ElicitRequest(params=wire.ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(prompt: str, tokens: int = 100) -> wire.CreateMessageRequest:
    message = wire.SamplingMessage(role="user", content=text(prompt))
    return wire.CreateMessageRequest(params=wire.CreateMessageRequestParams(messages=[message], max_tokens=tokens))


NAME = {"name": {"type": "string"}}
IMAGE = wire.ImageContent(data=PNG, mime_type="image/png")
CONTENTS: dict[str, list[wire.ContentBlock]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [wire.AudioContent(data=WAV, mime_type="audio/wav")],
    "test_embedded_resource": [
        wire.EmbeddedResource(
            resource=wire.TextResourceContents(
                uri="test://embedded-resource", mime_type="text/plain", text="This is an embedded resource content."
            )
        )
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        IMAGE,
        wire.EmbeddedResource(
            resource=wire.TextResourceContents(
                uri="test://mixed-content-resource", mime_type="application/json", text='{"test":"data","value":123}'
            )
        ),
    ],
}
"""The tools that return the same content at each call."""
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
OPTIONS = ["option1", "option2", "option3"]
TITLES = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
CHOICES = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": TITLES},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLES}},
}
USER = {
    "username": {"type": "string", "description": "User's response"},
    "email": {"type": "string", "description": "User's email address"},
}
QUESTIONS: dict[str, Callable[[Mapping[str, Any]], dict[str, wire.InputRequest]]] = {
    "test_sampling": lambda arguments: {"answer": sample(arguments["prompt"])},
    "test_elicitation": lambda arguments: {"user": form(arguments["message"], USER, *USER)},
    "test_elicitation_sep1034_defaults": lambda _: {"defaults": form("Defaults", DEFAULTS)},
    "test_elicitation_sep1330_enums": lambda _: {"choices": form("Choices", CHOICES)},
    "test_streaming_elicitation": lambda _: {"user_name": form("What is your name?", NAME, "name")},
    "test_input_required_result_elicitation": lambda _: {"user_name": form("What is your name?", NAME, "name")},
    "test_input_required_result_sampling": lambda _: {"capital_question": sample("What is the capital of France?")},
    "test_input_required_result_list_roots": lambda _: {"client_roots": wire.ListRootsRequest()},
    "test_input_required_result_request_state": lambda _: {
        "confirm": form("Please confirm", {"ok": {"type": "boolean"}}, "ok")
    },
    "test_input_required_result_multiple_inputs": lambda _: {
        "user_name": form("What is your name?", NAME, "name"),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": wire.ListRootsRequest(),
    },
    "test_input_required_result_tampered_state": lambda _: {
        "confirm": form("Please confirm", {"ok": {"type": "boolean"}}, "ok")
    },
    "test_input_required_result_capabilities": lambda _: {
        "user_name": form("What is your name?", NAME, "name"),
        "greeting": sample("Generate a greeting", 50),
    },
}
"""The tools that ask the client, with what they ask."""
STEPS: list[dict[str, wire.InputRequest]] = [
    {"step1": form("Step 1: What is your name?", NAME, "name")},
    {"step2": form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, "color")},
]
CAPABILITY_OF = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "json_schema_2020_12_tool": SCHEMA,
    "test_custom_headers": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {"type": "string"}},
        "required": ["region"],
    },
}


async def list_tools(_: Context, __: Any) -> wire.ListToolsResult:
    names = {*CONTENTS, *QUESTIONS, *ACTIONS, "test_input_required_result_multi_round", "test_error_handling"}
    names |= extra_tools | TOOLS.keys()
    # The suite checks headers with the first tool, which has to work for a client without tasks.
    in_order = sorted(names, key=lambda name: (name in TOOLS, name))
    schemas = {name: SCHEMAS.get(name, {"type": "object", "properties": {}}) for name in in_order}
    return wire.ListToolsResult(
        tools=[wire.Tool(name=name, description=f"Tests {name}", input_schema=schemas[name]) for name in schemas]
    )


async def ask(
    context: Context, params: wire.InputResponseRequestParams, requests: dict[str, Any], state: str | None = None
) -> dict[str, Any] | wire.InputRequiredResult:
    """Return the client's answers; or, in the newer revision, the result that asks for them."""
    if context.session.protocol_version < "2026-07-28":
        return {
            key: await context.session.send_request(request, RESULTS[request.method])
            for key, request in requests.items()
        }
    if params.input_responses is None or not requests.keys() <= params.input_responses.keys():
        capabilities = context.session.client_capabilities or wire.ClientCapabilities()
        known = {key: item for key, item in requests.items() if getattr(capabilities, CAPABILITY_OF[item.method])}
        return wire.InputRequiredResult(input_requests=known or None, request_state=state if known else state or "none")
    return {key: params.input_responses[key] for key in requests}


RESULTS: dict[str, Any] = {
    "elicitation/create": wire.ElicitResult,
    "sampling/createMessage": wire.CreateMessageResult,
    "roots/list": wire.ListRootsResult,
}


def describe(answer: Any) -> str:
    value = answer
    if isinstance(answer, BaseModel):
        value = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    if isinstance(value, dict) and "action" in value:
        return f"action={value['action']}, content={json.dumps(value.get('content'))}"
    return json.dumps(value)


async def call_tool(context: Context, params: wire.CallToolRequestParams) -> Answer:
    name = params.name
    if name in CONTENTS:
        return wire.CallToolResult(content=CONTENTS[name])
    if name in QUESTIONS:
        return await call_with_questions(context, params, name, params.arguments or {})
    if name == "test_input_required_result_multi_round":
        return await call_in_two_steps(context, params)
    if name == "test_error_handling":
        content: list[wire.ContentBlock] = [text("This tool intentionally returns an error for testing")]
        return wire.CallToolResult(content=content, is_error=True)
    if name == "greet":
        return wire.CallToolResult(content=[text(f"Hello, {(params.arguments or {}).get('name', 'you')}!")])
    if name == "test_tool_with_task":
        answers = await ask(context, params, {"user_name": form("What is your name?", NAME, "name")})
        if isinstance(answers, wire.InputRequiredResult):
            return answers
        return tasks.create(context, name, describe(answers["user_name"]))
    if name in TOOLS:
        return await tasks.call(context, name, params.arguments or {})
    if name not in ACTIONS:
        raise MCPError(wire.INVALID_PARAMS, f"Unknown tool: {name}")
    await ACTIONS[name](context)
    return wire.CallToolResult(content=[text(f"{name} is done")])


async def call_in_two_steps(context: Context, params: wire.CallToolRequestParams) -> Answer:
    step = 1 if params.request_state == "step 1" else 0
    answers = await ask(context, params, STEPS[step], f"step {step}")
    if isinstance(answers, wire.InputRequiredResult):
        return answers
    if step == 0:
        return wire.InputRequiredResult(input_requests=STEPS[1], request_state="step 1")
    return wire.CallToolResult(content=[text("Both steps are done.")])


async def log_three_lines(context: Context) -> None:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        with warnings.catch_warnings(action="ignore"):
            await context.session.send_log_message("info", line, related_request_id=context.request_id)
        await anyio.sleep(SECONDS)


async def report_progress(context: Context) -> None:
    for progress in (0, 50, 100):
        await context.session.report_progress(progress, 100)
        await anyio.sleep(SECONDS)


async def require_sampling(context: Context) -> None:
    capabilities = context.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        required: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(wire.MISSING_REQUIRED_CLIENT_CAPABILITY, "sampling is required", required)


async def change_tools(_: Context) -> None:
    extra_tools.symmetric_difference_update({"extra_tool"})
    await bus.publish(ToolsListChanged())


async def change_prompts(_: Context) -> None:
    extra_prompts.symmetric_difference_update({"extra_prompt"})
    await bus.publish(PromptsListChanged())


async def do_nothing(_: Context) -> None:
    pass


ACTIONS: dict[str, Callable[[Context], Awaitable[None]]] = {
    "test_tool_with_logging": log_three_lines,
    "test_logging_tool": log_three_lines,
    "test_tool_with_progress": report_progress,
    "test_missing_capability": require_sampling,
    "test_trigger_tool_change": change_tools,
    "test_trigger_prompt_change": change_prompts,
    "test_custom_headers": do_nothing,
    "json_schema_2020_12_tool": do_nothing,
}
"""The tools that do something, and then say that it is done."""
extra_tools: set[str] = set()
extra_prompts: set[str] = set()
tasks = FeatureTasks()
bus = InMemorySubscriptionBus()


async def call_with_questions(
    context: Context, params: wire.CallToolRequestParams, name: str, arguments: Mapping[str, Any]
) -> Answer:
    state = f"state of {name}" if "state" in name or "multiple" in name else None
    if params.request_state is not None and state is not None and params.request_state != state:
        raise MCPError(wire.INVALID_PARAMS, "The request state is not valid")
    answers = await ask(context, params, QUESTIONS[name](arguments), state)
    if isinstance(answers, wire.InputRequiredResult):
        return answers
    shown = ", ".join(map(describe, answers.values()))
    prefix = {"test_sampling": "LLM response: ", "test_elicitation": "User response: "}.get(
        name, "Elicitation completed: "
    )
    name_given = getattr(answers.get("user_name"), "content", None) or {}
    return wire.CallToolResult(content=[text(f"{prefix}{shown} state-ok Hello, {name_given.get('name', 'you')}!")])


RESOURCES = {
    "test://static-text": ("text/plain", "This is the content of the static text resource."),
    "test://static-binary": ("image/png", PNG),
    "test://watched-resource": ("text/plain", "This resource is watched."),
}
TEMPLATE = "test://template/{id}/data"


async def list_resources(_: Context, __: Any) -> wire.ListResourcesResult:
    return wire.ListResourcesResult(
        resources=[
            wire.Resource(uri=uri, name=uri.rpartition("/")[2], description=f"Tests {uri}", mime_type=kind)
            for uri, (kind, _) in RESOURCES.items()
        ]
    )


async def list_templates(_: Context, __: Any) -> wire.ListResourceTemplatesResult:
    template = wire.ResourceTemplate(
        uri_template=TEMPLATE, name="template", description="Tests templates", mime_type="application/json"
    )
    return wire.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(_: Context, params: wire.ReadResourceRequestParams) -> wire.ReadResourceResult:
    uri = params.uri
    before, after = TEMPLATE.split("{id}")
    part: wire.TextResourceContents | wire.BlobResourceContents
    if uri in RESOURCES and RESOURCES[uri][1] == PNG:
        part = wire.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
    elif uri in RESOURCES:
        part = wire.TextResourceContents(uri=uri, mime_type="text/plain", text=RESOURCES[uri][1])
    elif uri.startswith(before) and uri.endswith(after):
        id_ = uri.removeprefix(before).removesuffix(after)
        value = {"id": id_, "templateTest": True, "data": f"Data for ID: {id_}"}
        part = wire.TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(value))
    else:
        raise MCPError(wire.INVALID_PARAMS, "Resource not found", {"uri": uri})
    return wire.ReadResourceResult(contents=[part])


async def accept(_: Context, __: Any) -> wire.EmptyResult:
    return wire.EmptyResult()


PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


async def list_prompts(_: Context, __: Any) -> wire.ListPromptsResult:
    return wire.ListPromptsResult(
        prompts=[
            wire.Prompt(
                name=name,
                description=f"Tests {name}",
                arguments=[wire.PromptArgument(name=argument, required=True) for argument in arguments],
            )
            for name, arguments in (PROMPTS | dict.fromkeys(extra_prompts, ())).items()
        ]
    )


async def get_prompt(
    context: Context, params: wire.GetPromptRequestParams
) -> wire.GetPromptResult | wire.InputRequiredResult:
    arguments = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            blocks: list[wire.ContentBlock] = [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            blocks = [text(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'")]
        case "test_prompt_with_embedded_resource":
            resource = wire.TextResourceContents(
                uri=arguments["resourceUri"], mime_type="text/plain", text="Embedded resource content for testing."
            )
            blocks = [wire.EmbeddedResource(resource=resource), text("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            blocks = [IMAGE, text("Please analyze the image above.")]
        case "test_input_required_result_prompt":
            question = form("What context should the prompt use?", {"context": {"type": "string"}}, "context")
            answers = await ask(context, params, {"user_context": question})
            if isinstance(answers, wire.InputRequiredResult):
                return answers
            blocks = [text(f"Use this context: {describe(answers['user_context'])}")]
        case _:
            raise MCPError(wire.INVALID_PARAMS, f"Unknown prompt: {params.name}")
    return wire.GetPromptResult(messages=[wire.PromptMessage(role="user", content=block) for block in blocks])


async def complete(_: Context, params: wire.CompleteRequestParams) -> wire.CompleteResult:
    values = [value for value in ("paris", "park", "party") if value.startswith(params.argument.value)]
    return wire.CompleteResult(completion=wire.Completion(values=values, total=len(values), has_more=False))


def build_server() -> Server[Any]:
    """Return the server."""
    with warnings.catch_warnings(action="ignore"):
        server: Server[Any] = Server(
            "features",
            version="1.0.0",
            on_list_tools=list_tools,
            on_list_resources=list_resources,
            on_list_resource_templates=list_templates,
            on_read_resource=read_resource,
            on_subscribe_resource=accept,
            on_unsubscribe_resource=accept,
            on_list_prompts=list_prompts,
            on_get_prompt=get_prompt,
            on_completion=complete,
            on_set_logging_level=accept,
            on_subscriptions_listen=ListenHandler(bus),
        )
    server.add_request_handler("tools/call", wire.CallToolRequestParams, call_tool)
    tasks.serve(server)
    return server


async def main() -> None:
    """Serve until standard input ends."""
    server = build_server()
    async with stdio_server() as (incoming, outgoing):
        changes = NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
        await server.run(incoming, outgoing, server.create_initialization_options(changes))


if __name__ == "__main__":
    anyio.run(main)
