// Scatter plot of refined against unrefined shares.

function makeComparison(canvas) {
  const margin = { left: 58, right: 10, top: 10, bottom: 40 };

  function draw() {
    const { context, width, height } = clearedCanvas(canvas, 320);
    const bend = typicalReach();
    let low = -bend, high = bend;
    for (let i = 0; i < values.held; i++) {
      low = Math.min(low, values.estimate[i], values.refined[i]);
      high = Math.max(high, values.estimate[i], values.refined[i]);
    }
    const across = bentScale(low, high, margin.left, width - margin.right, bend);
    const up = bentScale(-bend / 6, high, height - margin.bottom, margin.top, bend);
    drawFrame(context, width, height, across, up, bend);
    context.fillStyle = colour("--second");
    context.globalAlpha = values.held > 2000 ? 0.35 : 0.6;
    for (let i = 0; i < values.held; i++) {
      context.beginPath();
      context.arc(across.place(values.estimate[i]), up.place(values.refined[i]), 2.5, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  function drawFrame(context, width, height, across, up, bend) {
    const right = width - margin.right, bottom = height - margin.bottom;
    context.fillStyle = colour("--band");
    context.fillRect(across.place(-bend), margin.top, across.place(bend) - across.place(-bend), bottom - margin.top);
    gridlines(context, up, margin.left, right);
    context.textAlign = "center";
    for (const share of across.ticks) {
      context.strokeStyle = colour(share === 0 ? "--strong-line" : "--line");
      line(context, across.place(share), margin.top, across.place(share), bottom);
      const edge = Math.min(across.place(share), width - 20);
      context.fillText(tick(share, across.step), edge, bottom + 12);
    }
    context.fillText("Unrefined share (refined share upwards)", (margin.left + right) / 2, height - 8);
    context.save();
    context.beginPath();
    context.rect(margin.left, margin.top, right - margin.left, bottom - margin.top);
    context.clip();
    context.strokeStyle = colour("--strong-line");
    context.setLineDash([4, 4]);
    context.beginPath();
    // The diagonal is piecewise linear: both scales bend at the same shares.
    const shares = [...across.ticks, ...up.ticks, -bend, bend].sort((a, b) => a - b);
    for (const share of shares) context.lineTo(across.place(share), up.place(share));
    context.stroke();
    context.restore();
  }

  return redrawOnChange(canvas, draw);
}
