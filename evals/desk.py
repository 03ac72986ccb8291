"""An MCP server with tools of an office: ``python -m evals.desk``. Its data is made up and never changes."""

from __future__ import annotations

import ast
import datetime
import operator
from collections.abc import Callable
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

server = MCPServer("desk", log_level="CRITICAL")

FILES = {
    "/docs/notes.txt": "Buy lamp oil. Water the ferns on Friday.",
    "/docs/budget.csv": "item,amount\nrent,1200\nfood,450\ntravel,300",
    "/docs/recipes/soup.txt": "Leek soup: 3 leeks, 2 potatoes, 1 litre of stock. Cook for 25 minutes.",
    "/home/mia/todo.md": "1. Call the plumber\n2. Renew the passport",
    "/home/mia/letter.txt": "Dear Jonas, the boat is called Seagull. See you in May.",
    "/projects/orion/README.md": "Orion measures river levels. Maintainer: Lena Vogel.",
    "/projects/orion/config.yaml": "port: 8471\nlog_level: warning",
}
CONTACTS = {
    "Mia Keller": "mia@example.test, phone 555-0132, lives in Lisbon, manager: Jonas Brandt",
    "Jonas Brandt": "jonas@example.test, phone 555-0187, lives in Vienna, manager: Ruth Okafor",
    "Lena Vogel": "lena.vogel@example.test, phone 555-0154, lives in Oslo, manager: Ruth Okafor",
    "Ruth Okafor": "ruth@example.test, phone 555-0199, lives in Nairobi, no manager",
}
WEATHER = {
    "lisbon": ("sunny, 24 °C", "cloudy, 21 °C"),
    "vienna": ("rain, 12 °C", "fog, 9 °C"),
    "oslo": ("snow, -3 °C", "clear, -7 °C"),
    "nairobi": ("cloudy, 22 °C", "thunderstorm, 19 °C"),
    "rome": ("sunny, 19 °C", "windy, 16 °C"),
    "dublin": ("drizzle, 11 °C", "rain, 10 °C"),
}
ORDERS = {
    1042: "shipped, tracking number PX-771",
    1057: "being packed, leaves on 3 March",
    2210: "delivered on 14 February",
    3381: "shipped, tracking number QT-208",
}
PARCELS = {"PX-771": "in Hamburg, arrives on 6 March", "QT-208": "at customs in Porto, arrives on 12 March"}
STOCKS = {"ACME": "83.20 USD", "NVLT": "14.75 USD", "ORBT": "212.40 USD"}
EVENTS = {
    "2026-03-02": "09:30 dentist; 14:00 review with Lena Vogel",
    "2026-03-05": "11:00 budget meeting in room Cedar",
    "2026-03-09": "no events",
}
WORDS = {"petrichor": "the smell of rain on dry earth", "ullage": "the empty space in a cask or a bottle"}
COUNTRIES = {
    "norvania": "capital Helmsund, 4.1 million people, currency crown",
    "tessaly": "capital Orvo, 860,000 people, currency lira",
}
FLIGHTS = {"KX204": "delayed by 40 minutes, gate B12", "LM77": "on time, gate A3", "ZR550": "cancelled"}
DISTANCES = {("lisbon", "rome"): 1864, ("oslo", "vienna"): 1353, ("dublin", "rome"): 1886}
BOOKS = {"the glass harbour": "by Ines Falk, 1987, shelf D4", "winter arithmetic": "by Tomas Reed, 2003, shelf A9"}
ROOMS = {"kitchen": 21.5, "cellar": 9.0, "office": 23.0, "bedroom": 18.5}
PRODUCTS = {
    "desk lamp": "39.90 EUR, 12 in stock",
    "office chair": "189.00 EUR, none in stock",
    "kettle": "25.00 EUR, 4 in stock",
}
TRAINS = {("orvo", "helmsund"): "08:15 and 16:40, 2 h 10 min", ("vienna", "rome"): "19:18, night train, 13 h"}
RATES = {("USD", "EUR"): 0.9, ("EUR", "USD"): 1.11, ("GBP", "EUR"): 1.15, ("EUR", "JPY"): 160.0}

_UNITS = {
    ("km", "mi"): 0.621371,
    ("mi", "km"): 1.609344,
    ("kg", "lb"): 2.204623,
    ("lb", "kg"): 0.453592,
    ("m", "ft"): 3.28084,
    ("ft", "m"): 0.3048,
}
_OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def value_of(expression: str) -> float:
    """Compute ``+ - * / %`` and parentheses.

    Raises:
        ValueError: The expression has other parts.
    """
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise ValueError(f"cannot be computed: {expression[:80]}") from error


def _value(node: ast.AST) -> float:
    match node:
        case ast.Constant(int() | float() as value):
            return value
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op, operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand))
    raise ValueError("only numbers, + - * / % and parentheses")


def _known(table: dict[Any, Any], key: Any, what: str) -> Any:
    if key not in table:
        raise ToolError(f"no such {what}: {key}")
    return table[key]


@server.tool()
def calculate(expression: Annotated[str, Field(description="An arithmetic expression, such as (2 + 3) * 4")]) -> str:
    """Compute an arithmetic expression."""
    try:
        return f"{value_of(expression):.10g}"
    except ValueError as error:
        raise ToolError(str(error)) from error


@server.tool()
def convert_units(
    value: float,
    from_unit: Literal["km", "mi", "kg", "lb", "m", "ft", "C", "F"],
    to_unit: Literal["km", "mi", "kg", "lb", "m", "ft", "C", "F"],
) -> str:
    """Convert a length, a weight or a temperature to another unit."""
    if (from_unit, to_unit) == ("C", "F"):
        return f"{value * 1.8 + 32:.1f} F"
    if (from_unit, to_unit) == ("F", "C"):
        return f"{(value - 32) / 1.8:.1f} C"
    return f"{value * _known(_UNITS, (from_unit, to_unit), 'conversion'):.2f} {to_unit}"


@server.tool()
def weather_forecast(city: str, day: Literal["today", "tomorrow"] = "today") -> str:
    """Get the weather of a city for today or tomorrow."""
    weather = _known(WEATHER, city.split(",", maxsplit=1)[0].strip().lower(), "city")
    return f"{city}, {day}: {weather[day == 'tomorrow']}"


@server.tool()
def list_directory(path: Annotated[str, Field(description="The directory's absolute path")]) -> str:
    """List the files in a directory."""
    begin = path.rstrip("/") + "/"
    names = sorted({name.removeprefix(begin).split("/")[0] for name in FILES if name.startswith(begin)})
    if not names:
        raise ToolError(f"no such directory: {path}")
    return "\n".join(names)


@server.tool()
def read_file(path: Annotated[str, Field(description="The file's absolute path")]) -> str:
    """Read a text file."""
    return str(_known(FILES, path, "file"))


@server.tool()
def search_files(text: Annotated[str, Field(description="What the file contains")]) -> str:
    """Find the files that contain a text, and give their paths."""
    found = [path for path, content in FILES.items() if text.lower() in content.lower()]
    return "\n".join(found) or "no file contains it"


@server.tool()
def find_contact(name: Annotated[str, Field(description="The person's name")]) -> str:
    """Look a person up in the address book: e-mail, phone, city and manager."""
    found = [f"{full}: {what}" for full, what in CONTACTS.items() if name.lower() in full.lower()]
    if not found:
        raise ToolError(f"no such person: {name}")
    return "\n".join(found)


@server.tool()
def send_message(
    to: Annotated[str, Field(description="The receiver's e-mail address")],
    text: Annotated[str, Field(description="The message")],
) -> str:
    """Send a message to an e-mail address."""
    return f"Sent to {to} ({len(text)} characters)."


@server.tool()
def list_events(date: Annotated[str, Field(description="The day, as YYYY-MM-DD")]) -> str:
    """List the events in the calendar on a day."""
    return str(_known(EVENTS, date, "day in the calendar"))


@server.tool()
def add_todo(task: Annotated[str, Field(description="What is to be done")]) -> str:
    """Add a task to the to-do list."""
    return f"Added as number 7: {task}"


@server.tool()
def stock_price(symbol: Annotated[str, Field(description="The share's symbol")]) -> str:
    """Get the current price of a share."""
    return f"{symbol.upper()}: {_known(STOCKS, symbol.upper(), 'share')}"


@server.tool()
def exchange_rate(from_currency: str, to_currency: str) -> str:
    """Get the exchange rate between two currencies, by their three-letter codes."""
    pair = (from_currency.upper(), to_currency.upper())
    return f"1 {pair[0]} = {_known(RATES, pair, 'pair of currencies')} {pair[1]}"


@server.tool()
def order_status(order_id: int) -> str:
    """Get the status of an order by its number."""
    return f"Order {order_id}: {_known(ORDERS, order_id, 'order')}"


@server.tool()
def track_parcel(tracking_number: str) -> str:
    """Find out where a parcel is, by its tracking number."""
    return f"{tracking_number}: {_known(PARCELS, tracking_number.upper(), 'parcel')}"


@server.tool()
def define_word(word: str) -> str:
    """Look a rare word up in the dictionary."""
    return f"{word}: {_known(WORDS, word.lower(), 'word in the dictionary')}"


@server.tool()
def country_info(country: str) -> str:
    """Look a country up: capital, population, currency."""
    return f"{country}: {_known(COUNTRIES, country.lower(), 'country')}"


@server.tool()
def flight_status(flight: Annotated[str, Field(description="The flight's number")]) -> str:
    """Get the status and the gate of a flight."""
    return f"Flight {flight}: {_known(FLIGHTS, flight.upper().replace(' ', ''), 'flight')}"


@server.tool()
def count_words(text: str) -> str:
    """Count the words of a text."""
    return f"{len(text.split())} words"


@server.tool()
def distance(from_city: str, to_city: str) -> str:
    """Get the distance between two cities in kilometres."""
    pair = (from_city.lower(), to_city.lower())
    return f"{DISTANCES.get(pair) or _known(DISTANCES, pair[::-1], 'pair of cities')} km"


@server.tool()
def find_book(title: str) -> str:
    """Find a book of the library: author, year and shelf."""
    return f"{title}: {_known(BOOKS, title.lower(), 'book')}"


@server.tool()
def day_of_week(date: Annotated[str, Field(description="The day, as YYYY-MM-DD")]) -> str:
    """Get the day of the week of a date."""
    return f"{datetime.date.fromisoformat(date):%A}"


@server.tool()
def set_light(room: str, on: bool) -> str:  # noqa: FBT001 - the tool's own argument
    """Switch the light of a room on or off."""
    return f"The light in the {room} is now {'on' if on else 'off'}."


@server.tool()
def room_temperature(room: str) -> str:
    """Measure the temperature of a room in degrees Celsius."""
    return f"{_known(ROOMS, room.lower(), 'room')} °C"


@server.tool()
def product_price(product: str) -> str:
    """Get the price of a product, and how many are in stock."""
    return f"{product}: {_known(PRODUCTS, product.lower().removesuffix('s'), 'product')}"


@server.tool()
def train_times(from_station: str, to_station: str) -> str:
    """Get the departures of the trains between two stations."""
    return f"{_known(TRAINS, (from_station.lower(), to_station.lower()), 'train')}"


if __name__ == "__main__":
    server.run("stdio")
