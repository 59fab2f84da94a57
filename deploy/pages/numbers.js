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

function interval(i, digits) {
  const low = withMinus((100 * values.low(i)).toFixed(digits));
  return low + " to " + percent(values.high(i), digits);
}

function users(share) {
  return withMinus(Math.round(share * values.users).toLocaleString("en"));
}

function userInterval(i) {
  return users(values.low(i)) + " to " + users(values.high(i));
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
