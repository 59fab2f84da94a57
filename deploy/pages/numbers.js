// Format numbers for readers: percent, with the digits that the noise justifies.

// Decimals that show two digits of a standard error.
function digitsFor(error) {
  return error > 0 ? Math.min(9, Math.max(0, 1 - Math.floor(Math.log10(100 * error)))) : 2;
}

function withMinus(text) {
  // A share that rounds to 0 has no sign.
  return /^-0\.?0*$/.test(text) ? text.slice(1) : text.replace("-", "\u2212");
}

function percent(share, digits) {
  return withMinus((100 * share).toFixed(digits)) + "\u202f%";
}

function interval(low, high, digits) {
  return withMinus((100 * low).toFixed(digits)) + " to " + percent(high, digits);
}

function users(share) {
  return withMinus(Math.round(share * given.users).toLocaleString("en"));
}

function userInterval(low, high) {
  return users(low) + " to " + users(high);
}

// Name of the intervals at the page's confidence.
function levelName(what) {
  return Math.round(1e6 * given.confidence) / 1e4 + "\u202f%" + what;
}

function whole(number) {
  return number.toLocaleString("en");
}

// Label of a tick, with the decimals of the step between ticks, if any, or its own.
function tick(share, step = share) {
  if (share === 0) return "0";
  const digits = Math.max(0, -Math.floor(Math.log10(Math.abs(100 * step)) + 1e-9));
  return withMinus((100 * share).toFixed(Math.min(digits, 9))) + "\u202f%";
}
