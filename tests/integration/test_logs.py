"""Log events of the package: silent by default, to standard logging, and in the format of the program."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from tests.inner import get_logger


@pytest.fixture(autouse=True)
def _default_structlog() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def test_without_logging_set_up_nothing_is_printed() -> None:
    program = "from dial_client.runtime.logs import get_logger; get_logger('dial_client.x').warning('odd', tool='now')"
    heard = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (heard.stdout, heard.stderr) == ("", "")


def test_structlog_is_not_loaded_for_disabled_events() -> None:
    program = (
        "import sys; from dial_client.runtime.logs import get_logger; get_logger('dial_client.x').debug('odd'); "
        "print('structlog' in sys.modules)"
    )
    heard = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert heard.stdout == "False\n"


def test_a_handler_gets_the_event_and_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("dial_client.tools.executor")
    with caplog.at_level(logging.DEBUG, logger="dial_client"):
        log.debug("tool_call", tool="now", seconds=0.5)
        log.warning("tool_call_broke", tool="now")
    assert [(record.levelname, record.name, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "dial_client.tools.executor", "event='tool_call' tool='now' seconds=0.5"),
        ("WARNING", "dial_client.tools.executor", "event='tool_call_broke' tool='now'"),
    ]


@pytest.mark.parametrize(("level", "events"), [(logging.DEBUG, 2), (logging.WARNING, 1), (logging.ERROR, 0)])
def test_the_level_of_the_standard_logger_applies(caplog: pytest.LogCaptureFixture, level: int, events: int) -> None:
    log = get_logger("dial_client.x")
    with caplog.at_level(level, logger="dial_client"):
        log.debug("one")
        log.warning("two")
    assert len(caplog.records) == events


def test_control_characters_in_fields_are_escaped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="dial_client"):
        get_logger("dial_client.x").debug("tool_call", tool="now\n2026 ERROR forged\x1b[2J %s %d")
    [record] = caplog.records
    assert "\n" not in record.getMessage()
    assert "\x1b" not in record.getMessage()
    assert "%s %d" in record.getMessage()


def test_the_structlog_configuration_of_the_program_is_used(caplog: pytest.LogCaptureFixture) -> None:
    structlog.configure(processors=[structlog.processors.JSONRenderer(sort_keys=True)])
    with caplog.at_level(logging.DEBUG, logger="dial_client"):
        get_logger("dial_client.x").debug("tool_call", tool="now")
    assert [record.getMessage() for record in caplog.records] == ['{"event": "tool_call", "tool": "now"}']


def test_a_structlog_configuration_for_standard_logging_is_used(caplog: pytest.LogCaptureFixture) -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.add_log_level,
            structlog.processors.KeyValueRenderer(key_order=["level", "logger", "event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    with caplog.at_level(logging.DEBUG, logger="dial_client"):
        get_logger("dial_client.x").warning("odd", tool="now")
    assert [record.getMessage() for record in caplog.records] == [
        "level='warning' logger='dial_client.x' event='odd' tool='now'"
    ]


def test_a_service_writes_every_line_of_its_log_as_json_with_those_of_other_libraries() -> None:
    program = (
        "import logging\n"
        "from dial_client.cli.streams.process_runner import log_requests, write_log_as_json\n"
        "from dial_client.runtime.logs import get_logger\n"
        "logging.basicConfig(level=logging.WARNING, format='%(message)s')\n"
        "logging.getLogger('dial_client').setLevel(logging.WARNING)\n"
        "log_requests()\n"
        "write_log_as_json()\n"
        "logging.getLogger('uvicorn').warning('a %s', 'foreign line')\n"
        "get_logger('dial_client.serve.request_log').info('request', path='/x')\n"
        "get_logger('dial_client.turns').info('not shown')\n"
    )
    heard = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in heard.stderr.splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [("a foreign line", "warning"), ("request", "info")]
    assert all(line["timestamp"].endswith("Z") for line in lines)
