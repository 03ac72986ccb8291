"""An MCP server with tools of a small town: ``python -m evals.town``. Its data is made up and never changes."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

server = MCPServer("town", log_level="CRITICAL")

PLANTS = {
    "sea holly": "family Apiaceae, 60 cm high, flowers in July",
    "marsh violet": "family Violaceae, 15 cm high, flowers in April",
    "stone fern": "family Aspleniaceae, 20 cm high, never flowers",
}
REGIONS = {
    "velmark": "largest town Torsby, 3,400 square kilometres, language Velmarkish",
    "south lorne": "largest town Pell, 910 square kilometres, language Lornish",
}
TIDES = {"pell": "high at 04:20 and 16:45, low at 10:30", "torsby": "high at 06:05 and 18:30, low at 12:15"}
MUSEUMS = {"maritime museum": "10:00 to 17:00, closed on Mondays", "glass museum": "11:00 to 18:00, closed on Tuesdays"}
RECIPES = {"pea stew": "peas, carrots, barley; 45 minutes", "apple crumble": "apples, flour, butter, sugar; 50 minutes"}
AIR = {"torsby": "good, index 21", "pell": "moderate, index 64", "harrow": "poor, index 118"}
SONGS = {"paper boats": "by Nora Vance, 1994, 3 min 12 s", "long way north": "by the Ferrymen, 2008, 4 min 40 s"}
BUS_LINES = {"7": "Harbour, Town Hall, Mill Lane, Hospital", "12": "Station, Market, Glass Museum, Airport"}
EMPLOYEES = {
    "olga brandvold": "office 3.14, extension 4471, team Payments, supervisor Samir Haddad",
    "samir haddad": "office 2.08, extension 4420, team Platform, supervisor Eve Lindqvist",
    "eve lindqvist": "office 1.01, extension 4400, team Board, no supervisor",
}
INVOICES = {"INV-204": "paid on 3 April", "INV-311": "open, due on 30 June, customer Olga Brandvold"}
GLOSSARY = {"ledger key": "Kontenschlüssel", "batch run": "Stapellauf"}
GARAGES = {"north garage": "12 of 200 spaces free", "castle car park": "full, 80 spaces"}
STREETS = {"elm street": "paper on Tuesdays, glass on Fridays", "oak lane": "paper on Mondays, glass on Thursdays"}
BIRDS = {"kingfisher": "2 seen on 4 May at Mill Pond", "red kite": "none seen this year"}
LIFTS = {"town hall": "out of order since Monday", "library": "working"}
DEVICES = {"tablet": 64, "doorbell": 17, "watch": 92, "drone": 38}
RATES = {("EUR", "NOK"): 11.5, ("USD", "EUR"): 0.9, ("EUR", "USD"): 1.1}


def _find(table: Mapping[str, Any], key: str, kind: str) -> Any:
    name = key.strip().lower().removeprefix("the ")
    if name not in table:
        raise ToolError(f"no such {kind}: {key}")
    return table[name]


@server.tool()
def plant_info(name: str) -> str:
    """Look a plant up: family, height, and when it flowers."""
    return f"{name}: {_find(PLANTS, name, 'plant')}"


@server.tool()
def region_facts(region: str) -> str:
    """Get a region's largest town, area and language."""
    return f"{region}: {_find(REGIONS, region, 'region')}"


@server.tool()
def tide_times(harbour: str) -> str:
    """Get today's high and low tides of a harbour."""
    return f"{harbour}: {_find(TIDES, harbour, 'harbour')}"


@server.tool()
def opening_hours(museum: Annotated[str, Field(description="The museum's name")]) -> str:
    """Get the opening hours of a museum."""
    return f"{museum}: {_find(MUSEUMS, museum, 'museum')}"


@server.tool()
def convert_currency(amount: float, from_currency: str, to_currency: str) -> str:
    """Convert an amount of money to another currency, by three-letter codes."""
    pair = (from_currency.upper(), to_currency.upper())
    if pair not in RATES:
        raise ToolError(f"no rate for {pair[0]} to {pair[1]}")
    return f"{amount * RATES[pair]:.2f} {pair[1]}"


@server.tool()
def find_recipe(dish: str) -> str:
    """Find a recipe in the family cookbook: ingredients and time."""
    return f"{dish}: {_find(RECIPES, dish, 'recipe')}"


@server.tool()
def set_heating(room: str, degrees: float) -> str:
    """Set the heating of a room to a temperature."""
    return f"The heating in the {room} is set to {degrees:g} degrees."


@server.tool()
def add_note(text: Annotated[str, Field(description="The note")]) -> str:
    """Write a note into the notebook."""
    return f"Noted as number 12: {text}"


@server.tool()
def battery_level(device: str) -> str:
    """Get the battery level of a device in percent."""
    return f"{device}: {_find(DEVICES, device, 'device')} %"


@server.tool()
def air_quality(city: str) -> str:
    """Get the current air quality of a city."""
    return f"{city}: {_find(AIR, city, 'city')}"


@server.tool()
def count_letters(text: str) -> str:
    """Count the letters of a word or a text."""
    return f"{sum(letter.isalpha() for letter in text)} letters"


@server.tool()
def song_info(title: str) -> str:
    """Find a song: singer, year, length."""
    return f"{title}: {_find(SONGS, title, 'song')}"


@server.tool()
def bus_route(line: str) -> str:
    """Get the stops of a bus line."""
    return f"Line {line}: {_find(BUS_LINES, line, 'bus line')}"


@server.tool()
def days_between(
    first_date: Annotated[str, Field(description="As YYYY-MM-DD")],
    second_date: Annotated[str, Field(description="As YYYY-MM-DD")],
) -> str:
    """Count the days between two dates."""
    days = datetime.date.fromisoformat(second_date) - datetime.date.fromisoformat(first_date)
    return f"{abs(days.days)} days"


@server.tool()
def power(number: float, exponent: int) -> str:
    """Raise a number to a power."""
    return f"{number**exponent:g}"


@server.tool()
def employee_info(name: str) -> str:
    """Look an employee up: office, extension, team and supervisor."""
    return f"{name}: {_find(EMPLOYEES, name, 'employee')}"


@server.tool()
def invoice_status(invoice: Annotated[str, Field(description="The invoice's number")]) -> str:
    """Get the status of an invoice."""
    return f"{invoice}: {INVOICES.get(invoice.upper()) or _find({}, invoice, 'invoice')}"


@server.tool()
def glossary_term(term: str) -> str:
    """Look up the German translation of a term in the company's glossary."""
    return f"{term}: {_find(GLOSSARY, term, 'term')}"


@server.tool()
def lock_door(door: str, locked: bool) -> str:  # noqa: FBT001 - the tool's own argument
    """Lock or unlock a door."""
    return f"The {door} door is now {'locked' if locked else 'unlocked'}."


@server.tool()
def parking_spaces(garage: str) -> str:
    """Get the free spaces of a car park or a garage."""
    return f"{garage}: {_find(GARAGES, garage, 'car park')}"


@server.tool()
def recycling_days(street: str) -> str:
    """Get the days on which paper and glass are collected in a street."""
    return f"{street}: {_find(STREETS, street, 'street')}"


@server.tool()
def bird_sightings(species: str) -> str:
    """Get the latest sightings of a bird."""
    return f"{species}: {_find(BIRDS, species, 'bird')}"


@server.tool()
def lift_status(building: str) -> str:
    """Find out whether the lift of a building works."""
    return f"{building}: {_find(LIFTS, building, 'building')}"


if __name__ == "__main__":
    server.run("stdio")
