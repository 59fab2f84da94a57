/** Exact sums of privacy figures, each counted as its shortest decimal: sum_upper of Python. */

/** A decimal number: digits · 10^-places. */
interface Decimal {
  readonly digits: bigint;
  readonly places: number;
}

function decimal(value: number): Decimal {
  const [mantissa = "", exponent = "0"] = value.toExponential().split("e");
  const [whole = "", fraction = ""] = mantissa.split(".");
  const places = fraction.length - Number(exponent);
  const digits = BigInt(whole + fraction);
  return places >= 0 ? { digits, places } : { digits: digits * 10n ** BigInt(-places), places: 0 };
}

function scaled({ digits, places }: Decimal, to: number): bigint {
  return digits * 10n ** BigInt(to - places);
}

/** Return the least double that is not below the exact sum of figures of at least 0. */
export function sumUpper(figures: readonly number[]): number {
  if (figures.includes(Number.POSITIVE_INFINITY)) return Number.POSITIVE_INFINITY;
  const terms = figures.map(decimal);
  const places = Math.max(0, ...terms.map((term) => term.places));
  const exact = terms.reduce((total, term) => total + scaled(term, places), 0n);
  const nearest = Number(`${exact}e-${places}`);
  const found = decimal(nearest);
  const most = Math.max(places, found.places);
  const isBelow = scaled(found, most) < scaled({ digits: exact, places }, most);
  return isBelow ? nextUp(nearest) : nearest;
}

/** Return ⌊count · share⌋, exact for the decimal in a task's bytes: .9 of 10 is 9. */
export function shareOf(count: number, share: number): number {
  const { digits, places } = decimal(share);
  return Number((BigInt(count) * digits) / 10n ** BigInt(places));
}

/** Return the next double above a finite number of at least 0. */
export function nextUp(value: number): number {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  view.setBigUint64(0, view.getBigUint64(0) + 1n);
  return view.getFloat64(0);
}

/** Format a privacy figure with four significant digits, rounded up. */
export function roundedUp(figure: number): string {
  if (figure === Number.POSITIVE_INFINITY || figure === 0) return figure === 0 ? "0" : "inf";
  const shown = figure.toPrecision(4);
  if (Number(shown) >= figure) return String(Number(shown));
  const unit = 10 ** (Math.floor(Math.log10(figure)) - 3);
  return String(Number((Number(shown) + unit).toPrecision(4)));
}
