"""Get the answer as a typed value, after the necessary tool calls."""

import os
from datetime import date

from pydantic import BaseModel, Field

from dial_client import DialClient

MODEL = os.environ.get("DIAL_MODEL", "local")


class Invoice(BaseModel):
    number: str
    due: date
    total: float = Field(ge=0, description="in euros")


def read_invoice(name: str) -> str:
    """Return the text of an invoice."""
    return f"{name}: number 2026-117, total 119.00, due 2026-12-15"


turn = DialClient(MODEL, tools=[read_invoice]).run_sync("What is in invoice a.pdf?", output_type=Invoice)
invoice = turn.output  # type checkers know that this is an Invoice
print(invoice.number, invoice.due.isoformat(), f"{invoice.total:.2f}")
