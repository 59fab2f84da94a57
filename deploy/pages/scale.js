// Scales, which map shares and ranks to positions.

// Ticks at multiples of 1, 2 or 5 times a power of ten that split a range into about `parts` parts.
function steps(low, high, parts) {
  const rough = (high - low) / parts;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k++) ticks.push(k * step);
  return ticks;
}

// Distance between neighbouring ticks; undefined for a single tick.
const stepOf = (ticks) => ticks.length > 1 ? ticks[1] - ticks[0] : undefined;

// Linear from -bend to bend, logarithmic outside, so that noise and frequent values both show.
function bentScale(low, high, from, to, bend) {
  const bent = (x) => Math.sign(x) * (Math.abs(x) <= bend ? Math.abs(x) / bend : 1 + Math.log10(Math.abs(x) / bend));
  const start = bent(low), span = bent(high) - start || 1;
  const place = (x) => from + (to - from) * (bent(x) - start) / span;
  const ticks = [0];
  for (let power = Math.floor(Math.log10(bend)); 10 ** power <= Math.max(high, -low); power++) {
    const decade = 10 ** power;
    if (decade < bend) continue;
    if (decade <= high) ticks.push(decade);
    if (-decade >= low) ticks.push(-decade);
  }
  if (ticks.length > 1) return { place, ticks };
  // Everything is in the linear part: place linear ticks.
  const inside = steps(Math.max(low, -bend), Math.min(high, bend), 4);
  return { place, ticks: inside, step: stepOf(inside) };
}

// Scale of ranks: logarithmic to spread the first ranks, or linear.
function rankScale(count, from, to, logarithmic) {
  const last = Math.max(1, logarithmic ? Math.log(count) : count - 1);
  const place = (rank) => from + (to - from) * (logarithmic ? Math.log(rank + 1) : rank) / last;
  const rank = (at) => {
    const share = (at - from) / (to - from);
    const near = logarithmic ? Math.exp(share * last) - 1 : share * last;
    return Math.min(count - 1, Math.max(0, Math.round(near)));
  };
  const ticks = [];
  if (logarithmic) for (let n = 1; n <= count; n *= 10) ticks.push(n - 1);
  else for (const step of steps(0, count - 1, 6)) if (Number.isInteger(step)) ticks.push(step);
  return { place, rank, ticks };
}
