// JSON whose numbers keep their exact value. JavaScript's own numbers are doubles: 9007199254740993 would become …992,
// and a person would approve, or send, another number than the one that was meant.
//
// A number that a double does not hold exactly stays the text of its source, as the browser's own raw JSON
// (JSON.rawJSON), which JSON.stringify writes as it was read. Browsers without raw JSON round such numbers.

const isExact = (value, source) => describeDecimal(String(value)) === describeDecimal(source);
const isRaw = (value) => JSON.isRawJSON?.(value) ?? false;

/** Only such texts can contain a number that a double does not hold; others are read without looking at each number. */
const MAY_BE_INEXACT = /[\d.]{16}|[eE][+-]?\d{3}/;

/**
 * Parse JSON as JSON.parse does; a number that a double does not hold is raw JSON. With `keepsForm`, for texts that are
 * only shown, each number that JavaScript would write in another way is: "12.50" stays 12.50.
 */
export function parseJson(text, { keepsForm = false } = {}) {
  if (!JSON.rawJSON || !(keepsForm || MAY_BE_INEXACT.test(text))) return JSON.parse(text);
  const isKept = keepsForm ? (value, source) => String(value) === source : isExact;
  return JSON.parse(text, (key, value, { source }) => {
    return typeof value !== "number" || isKept(value, source) ? value : JSON.rawJSON(source);
  });
}

/** Return the number that a person typed, without rounding. */
export function readNumber(text) {
  const number = Number(text);
  if (!JSON.rawJSON || isExact(number, text)) return number;
  const withoutZeros = text.replace(/^(-?)0*/, "$1");
  return JSON.rawJSON(withoutZeros.replace(/^(-?)(?=\.)/, "$10")); // JSON needs a digit before the point
}

/** Return true if a value of JSON is an object. */
export const isObject = (value) => {
  return value !== null && typeof value === "object" && !Array.isArray(value) && !isRaw(value);
};

/** Return a value in which all numbers are JavaScript's own: for arithmetic, and for messages to other documents. */
export function toPlain(value) {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}

/** Return the digits of a decimal number without zeros at both ends, with the place of its point; other texts unchanged. */
function describeDecimal(text) {
  const found = /^(-?)(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?$/.exec(text);
  if (!found) return text;
  const [, sign, whole, fraction, exponent = "0"] = found;
  const digits = (whole + fraction).replace(/^0+/, "");
  const significant = digits.replace(/0+$/, "");
  const place = Number(exponent) - fraction.length + digits.length - significant.length;
  return significant ? `${sign}${significant}e${place}` : "0";
}
