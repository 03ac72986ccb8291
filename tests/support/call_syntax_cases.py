"""Replies of models with printed tool calls: one row for each syntax, and rows that only look like calls."""

# ruff: noqa: RUF001 - DeepSeek's tokens contain fullwidth bars

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.inner import ToolSpec

WEATHER = ToolSpec(
    "get_weather",
    "The weather in a city",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "hourly": {"type": "boolean"},
            "parts": {"type": "array", "items": {"type": "string"}},
            "at": {"type": "object", "properties": {"hour": {"type": "integer"}}},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
)
LIST = ToolSpec("list_all", "All of them", {"type": "object", "properties": {}})
OFFERED = (WEATHER, LIST)

ROME: tuple[str, dict[str, Any]] = ("get_weather", {"city": "Rome"})
LONG: tuple[str, dict[str, Any]] = (
    "get_weather",
    {"city": "Rome", "days": 3, "hourly": True, "parts": ["wind", "rain"], "at": {"hour": 7}},
)
ALL: tuple[str, dict[str, Any]] = ("list_all", {})

ROME_ARGS = '{"city": "Rome"}'
ROME_JSON = f'{{"name": "get_weather", "arguments": {ROME_ARGS}}}'
LONG_ARGS = '{"city": "Rome", "days": 3, "hourly": true, "parts": ["wind", "rain"], "at": {"hour": 7}}'
LONG_JSON = f'{{"name": "get_weather", "arguments": {LONG_ARGS}}}'
ALL_JSON = '{"name": "list_all", "arguments": {}}'


@dataclass(frozen=True)
class Row:
    """A reply, its calls, its visible text, and its reasoning."""

    text: str
    calls: list[tuple[str, dict[str, Any]]]
    shown: str = ""
    reasoning: str = ""


def as_it_is(text: str) -> Row:
    """Return the row of a reply that is plain text."""
    return Row(text, [], text)


def _qwen(*values: tuple[str, str], name: str = "get_weather") -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values)
    return f"<function={name}>\n{inner}</function>"


VALUES = (("city", "Rome"), ("days", "3"), ("hourly", "true"), ("parts", '["wind", "rain"]'), ("at", '{"hour": 7}'))
_GLM = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in VALUES)
_MINIMAX = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in VALUES)
_DSML = "".join(
    f'<｜DSML｜parameter name="{key}" string="{"true" if key == "city" else "false"}">{value}</｜DSML｜parameter>\n'
    for key, value in VALUES
)
_PYTHON = 'get_weather(city="Rome", days=3, hourly=True, parts=["wind", \'rain\'], at={"hour": 7})'
_TEXTS = LONG_JSON.replace("3", '"3"')
_LINES = _qwen(("city", "Rome\n\nof </tool_call>"))
_TAG_IN_VALUE = _qwen(("city", "a <function=b> c"))
_WHEN = ROME_JSON.replace('{"city"', '{"when": 1, "city"')
_GEMMA = "city:<q>Rome<q>,days:3,hourly:true,parts:[<q>wind<q>,<q>rain<q>],at:{hour:7}"
_FUNCTION_GEMMA = _GEMMA.replace("<q>", "<escape>")
_GEMMA_4 = _GEMMA.replace("<q>", '<|"|>')

ROWS: dict[str, Row] = {
    "hermes": Row(f"I'll look. <tool_call>\n{LONG_JSON}\n</tool_call>", [LONG], "I'll look. "),
    "hermes, twice": Row(f"<tool_call>{ROME_JSON}</tool_call>\n<tool_call>{ALL_JSON}</tool_call>", [ROME, ALL]),
    "hermes, python's quotes": Row(
        "<tool_call>\n{'name': 'get_weather', 'arguments': {'city': 'Rome', 'hourly': True,}}\n</tool_call>",
        [("get_weather", {"city": "Rome", "hourly": True})],
    ),
    "hermes, a string too many": Row(f"<tool_call>{_TEXTS}</tool_call>", [LONG]),
    "hermes, arguments in a string": Row(
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Rome\\"}"}</tool_call>', [ROME]
    ),
    "hermes, a tag in a string": Row(
        '<tool_call>{"name": "get_weather", "arguments": {"city": "</tool_call><|im_end|>"}}</tool_call>',
        [("get_weather", {"city": "</tool_call><|im_end|>"})],
    ),
    "hermes, never closed": Row(f"<tool_call>{ROME_JSON}\nLet me look.", [ROME], "Let me look."),
    "hermes, a lone quote": Row(
        "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'say \"Rome'}}</tool_call> Then.",
        [("get_weather", {"city": 'say "Rome'})],
        "Then.",
    ),
    "hermes, arguments in a string of a string": Row(
        '<tool_call>{"name": "list_all", "arguments": "\\"{}\\""}</tool_call>', [ALL]
    ),
    "hermes, end of turn": Row(f"<tool_call>\n{ROME_JSON}<|im_end|>", [ROME]),
    "hermes, OpenAI's shape": Row(f'<tool_call>{{"type": "function", "function": {ROME_JSON}}}</tool_call>', [ROME]),
    "granite": Row(f"<tool_call>[{ROME_JSON}, {ALL_JSON}]</tool_call>", [ROME, ALL]),
    "granite, older": Row(f"<|tool_call|>[{ROME_JSON}]", [ROME]),
    "phi-4 mini": Row(f"<|tool_call|>[{LONG_JSON}]<|/tool_call|><|end|>", [LONG]),
    "phi-4": Row(f"functools[{LONG_JSON}, {ALL_JSON}]", [LONG, ALL]),
    "nemotron": Row(f"<TOOLCALL>[{LONG_JSON}]</TOOLCALL>", [LONG]),
    "command r": Row(
        f'<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[{{"tool_call_id": "0", "tool_name": "get_weather", '
        f'"parameters": {ROME_ARGS}}}]<|END_ACTION|>',
        [ROME],
        reasoning="Hm.",
    ),
    "internlm": Row(f"<|action_start|><|plugin|>{ROME_JSON}<|action_end|>", [ROME]),
    "hunyuan": Row(
        f"<tool_calls>\n<tool_call>get_weather\n```json\n{LONG_ARGS}\n```</tool_call>\n</tool_calls>", [LONG]
    ),
    "olmo": Row(f"<function_calls>\n{_PYTHON}\nlist_all()\n</function_calls>", [LONG, ALL]),
    "jamba": Row(
        f'<tool_calls>[\n{ROME_JSON},\n{{"name": "list_all", "arguments": "{{}}"}}\n]</tool_calls>', [ROME, ALL]
    ),
    "xlam": Row(f"[{ROME_JSON}, {ALL_JSON}]", [ROME, ALL]),
    "xlam, with a thought": Row(f"<think>hm</think>\n\n[{ROME_JSON}]", [ROME], reasoning="hm"),
    "llama, with a header": Row(f"<|start_header_id|>assistant<|end_header_id|>\n\n{ROME_JSON}<|eot_id|>", [ROME]),
    "a turn of the model's own": Row(f"<|im_start|>assistant\n{ROME_JSON}", [ROME]),
    "a turn of somebody else's": Row("It rains.<|im_end|>\n<|im_start|>user\nThanks!<|im_end|>", [], "It rains.\n"),
    "xlam, mistral's token": Row(f"[TOOL_CALLS] [{ROME_JSON}]", [ROME]),
    "qwen coder": Row(f"Now.\n\n<tool_call>\n{_qwen(*VALUES)}\n</tool_call>", [LONG], "Now.\n\n"),
    "qwen coder, without the outer tag": Row(f"{_qwen(*VALUES)}\n</tool_call>", [LONG]),
    "qwen coder, several lines": Row(
        f"<tool_call>{_LINES}</tool_call>", [("get_weather", {"city": "Rome\n\nof </tool_call>"})]
    ),
    "qwen coder, a number that is a text": Row(
        f"<tool_call>{_qwen(('city', '17'))}</tool_call>", [("get_weather", {"city": "17"})]
    ),
    "qwen coder, nothing to say": Row(f"<tool_call>\n{_qwen(name='list_all')}\n</tool_call>", [ALL]),
    "qwen coder, a null": Row(f"<tool_call>{_qwen(('city', 'Rome'), ('days', 'null'))}</tool_call>", [ROME]),
    "qwen coder, a call in a value": Row(
        f"<tool_call>{_TAG_IN_VALUE}</tool_call>", [("get_weather", {"city": "a <function=b> c"})]
    ),
    "llama, json": Row(f'{{"name": "get_weather", "parameters": {LONG_ARGS}}}', [LONG]),
    "llama, python tag": Row(f'<|python_tag|>{{"name": "get_weather", "parameters": {ROME_ARGS}}}<|eom_id|>', [ROME]),
    "llama, several": Row(
        f'<|python_tag|>{{"name": "get_weather", "parameters": {ROME_ARGS}}}; '
        '{"name": "list_all", "parameters": {}}',
        [ROME, ALL],
    ),
    "llama, function tag": Row(f"<function=get_weather>{LONG_ARGS}</function>", [LONG]),
    "pythonic": Row(f"[{_PYTHON}, list_all()]", [LONG, ALL]),
    "llama 4": Row(f"<|python_start|>[{_PYTHON}]<|python_end|><|eot|>", [LONG]),
    "lfm2": Row(f"<|tool_call_start|>[{_PYTHON}]<|tool_call_end|>Let me see.", [LONG], "Let me see."),
    "lfm2, json": Row(f"<|tool_call_start|>[{ROME_JSON}]<|tool_call_end|>", [ROME]),
    "harmony": Row(
        "<|channel|>analysis<|message|>Need the weather.<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.get_weather <|constrain|>json<|message|>{LONG_ARGS}<|call|>",
        [LONG],
        reasoning="Need the weather.",
    ),
    "harmony, the other order": Row(
        f"<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{ROME_ARGS}<|call|>", [ROME]
    ),
    "harmony, no call": Row(
        "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>It rains.<|return|>",
        [],
        "It rains.",
        "Easy.",
    ),
    "harmony, without an end": Row(
        "<|channel|>analysis<|message|>Easy.<|channel|>final<|message|>It rains.", [], "It rains.", "Easy."
    ),
    "mistral": Row(f"[TOOL_CALLS][{LONG_JSON}, {ALL_JSON}]", [LONG, ALL]),
    "mistral, later": Row(f"[TOOL_CALLS]get_weather[ARGS]{LONG_ARGS}[TOOL_CALLS]list_all[ARGS]{{}}", [LONG, ALL]),
    "mistral, with an id": Row(f"[TOOL_CALLS]get_weather[CALL_ID]abcDEF123[ARGS]{ROME_ARGS}</s>", [ROME]),
    "mistral's last token": Row("It <s>pours</s> rains.</s>\n", [], "It <s>pours</s> rains.\n"),
    "mistral, thinking": Row("[THINK]Hm.[/THINK]Well.[TOOL_CALLS]list_all[ARGS]{}", [ALL], "Well.", "Hm."),
    "deepseek v3": Row(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        f"{LONG_ARGS}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>list_all\n```json\n{{}}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
        [LONG, ALL],
    ),
    "deepseek v3.1": Row(
        f"Wait.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{LONG_ARGS}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>list_all<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [LONG, ALL],
        "Wait.",
    ),
    "deepseek v3.2": Row(
        f'<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n{_DSML}</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="list_all">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        [LONG, ALL],
    ),
    "deepseek v4": Row(
        f'<｜DSML｜tool_calls>\n<｜DSML｜invoke name="get_weather">\n{_DSML}</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
        [LONG],
    ),
    "kimi k2": Row(
        "Sure.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        f"{LONG_ARGS}<|tool_call_end|><|tool_call_begin|>functions.list_all:1<|tool_call_argument_begin|>{{}}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        [LONG, ALL],
        "Sure.",
    ),
    "kimi, thinking": Row("◁think▷Hm.◁/think▷It rains.", [], "It rains.", "Hm."),
    "glm": Row(f"<think></think>\n<tool_call>get_weather\n{_GLM}</tool_call>", [LONG]),
    "glm, nothing to say": Row("<tool_call>list_all\n</tool_call>", [ALL]),
    "minimax": Row(
        f'<minimax:tool_call>\n<invoke name="get_weather">\n{_MINIMAX}</invoke>\n</minimax:tool_call>', [LONG]
    ),
    "functiongemma": Row(f"<start_function_call>call:get_weather{{{_FUNCTION_GEMMA}}}<end_function_call>", [LONG]),
    "functiongemma, a result of its own": Row(
        "<start_function_call>call:list_all{}<end_function_call><start_function_response>response:list_all{a:1}", [ALL]
    ),
    "gemma 4": Row(
        f"<|channel>thought\nHm.\n<channel|><|tool_call>call:get_weather{{{_GEMMA_4}}}<tool_call|>",
        [LONG],
        reasoning="thought\nHm.\n",
    ),
    "bare": Row(ROME_JSON, [ROME]),
    "bare, several": Row(f"{LONG_JSON}\n{ALL_JSON}\n", [LONG, ALL]),
    "bare, in a list of its own": Row(f'{{"tool_calls": [{ROME_JSON}]}}', [ROME]),
    "fenced": Row(f"```json\n{LONG_JSON}\n```", [LONG]),
    "fenced, several": Row(f"```json\n{ROME_JSON}\n```\n```json\n{ALL_JSON}\n```", [ROME, ALL]),
    "fenced python": Row(f"```tool_code\n[{_PYTHON}]\n```", [LONG]),
    "fenced tags": Row(f"```xml\n<tool_call>\n{ROME_JSON}\n</tool_call>\n```", [ROME]),
    "a thought": Row("<thinking>a</thinking>It rains.", [], "It rains.", "a"),
    "reasoning": Row("<reasoning>a <tool_call></reasoning>It rains.", [], "It rains.", "a <tool_call>"),
    "a thought without an end": Row(
        f"<think>\nI could call <tool_call>{ROME_JSON}</tool_call>",
        [],
        "",
        f"\nI could call <tool_call>{ROME_JSON}</tool_call>",
    ),
}

WHOLE = frozenset({
    "phi-4", "xlam", "xlam, with a thought", "pythonic", "llama, json", "llama, with a header",
    "a turn of the model's own", "bare", "bare, several", "bare, in a list of its own", "fenced",
    "fenced, several", "fenced python", "fenced tags",
})  # fmt: skip
"""Rows whose text is a call only if the reply contains nothing else."""

SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}}'

DECOYS: dict[str, Row] = {
    "prose": as_it_is("Call list_all() to list them, or get_weather(city)."),
    "a word between tags": Row("Put <tool_call> and </tool_call> around it.", [], "Put  and  around it."),
    "markup in code": as_it_is(f"`<tool_call>{ROME_JSON}</tool_call>`"),
    "markup in a block": as_it_is(f"So:\n```\n<tool_call>{ROME_JSON}</tool_call>\n[TOOL_CALLS]\n```\nOk."),
    "a token in code": as_it_is("It ends with `<|im_end|>`."),
    "a token": Row("It rains.<|im_end|>\n", [], "It rains.\n"),
    "talk, then JSON": as_it_is(f"For example:\n{ROME_JSON}"),
    "talk, then a block": as_it_is(f"Do:\n```json\n{ROME_JSON}\n```"),
    "JSON, then talk": as_it_is(f"{ROME_JSON}\nThat is it."),
    "another tool": Row(
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>', [], '{"name": "rm", "arguments": {}}'
    ),
    "another tool, bare": as_it_is('{"name": "rm", "arguments": {}}'),
    "another tool in Python": as_it_is("[rm(path='/')]"),
    "another tool, tags": as_it_is("<function=rm>\n<parameter=path>\n/\n</parameter>\n</function>"),
    "another tool, mistral": Row("[TOOL_CALLS]rm[ARGS]{}", [], "rm[ARGS]{}"),
    "an argument too many": Row(f"<tool_call>{_WHEN}</tool_call>", [], _WHEN),
    "an argument too few": Row("[TOOL_CALLS]get_weather[ARGS]{}Hm.", [], "get_weather[ARGS]{}Hm."),
    "an argument of another type": as_it_is('{"name": "get_weather", "arguments": {"city": "Rome", "days": "soon"}}'),
    "one of two": as_it_is(f'[{ROME_JSON}, {{"name": "rm", "arguments": {{}}}}]'),
    "a definition": as_it_is(f'{{"name": "get_weather", "parameters": {SCHEMA}}}'),
    "a definition without arguments": as_it_is('{"name": "list_all", "parameters": {"type": "object"}}'),
    "a configuration": as_it_is('{"name": "list_all", "version": 1}'),
    "an echoed result": as_it_is(f'{{"name": "get_weather", "arguments": {ROME_ARGS}, "result": "rain"}}'),
    "an echoed result in tags": Row(
        '<tool_response>{"name": "list_all", "content": []}</tool_response>', [], '{"name": "list_all", "content": []}'
    ),
    "a result that is repeated": Row(
        f"It says:\n<tool_response><tool_call>{ROME_JSON}</tool_call>[TOOL_CALLS]list_all[ARGS]{{}}</tool_response>",
        [],
        f"It says:\n{ROME_JSON}list_all[ARGS]{{}}",
    ),
    "a call cut off": Row('Hm. <tool_call>{"name": "get_weather", "arguments": {"city": "Rome"', [], "Hm. "),
    "another tool's call cut off": Row(
        '<tool_call>{"name": "rm", "arguments": {"path": "/', [], '{"name": "rm", "arguments": {"path": "/'
    ),
    "a value cut off": Row("Hm. <tool_call><function=get_weather><parameter=city>Ro", [], "Hm. "),
    "a call cut off, mistral": Row('[TOOL_CALLS]get_weather[ARGS]{"city": "Ro', []),
    "a call cut off, bare": as_it_is('{"name": "get_weather", "arguments": {"city": "Ro'),
    "Python without keywords": as_it_is("[get_weather('Rome')]"),
    "Python, twice the same": as_it_is("[get_weather(city='Rome', city='Oslo')]"),
    "Python without commas": as_it_is("[get_weather(city='Rome' days=1)]"),
    "Python, then talk": as_it_is("[list_all()] would list them."),
    "calls that are no objects": as_it_is('{"tool_calls": ["list_all"]}'),
    "a wrapper with more in it": as_it_is(f'{{"function": {ROME_JSON}, "result": "rain"}}'),
    "braces without a call": Row("<|tool_call>call:list_all<tool_call|>", [], "call:list_all"),
    "braces without an end": Row("Hm. <start_function_call>call:list_all{a:<escape>b", [], "Hm. "),
    "an unknown channel": Row("<|start|>analysiss", [], "analysiss"),
    "Python cut off": as_it_is("[get_weather(city='Rome'"),
    "a list": as_it_is("[list, of, words]"),
    "numbers": as_it_is("[1, 2, 3]"),
    "a person": as_it_is('{"name": "Ann", "age": 4}'),
    "html": as_it_is("<p>a <b>bold</b> [link](x) </invoke> </function></p>"),
    "operators": as_it_is("a <| b |> c, 1 <<2, x <- y"),
    "a command line": as_it_is("Usage: x [ARGS] [TOOL]"),
    "labels": as_it_is("Thought: a\nAction: list_all\nAction Input: {}"),
    "python in words": Row("<|python_tag|>print(1)", [], "print(1)"),
    "a constraint": Row("<|channel|> is a token.", [], "is a token."),
}

EVERY = ROWS | DECOYS
