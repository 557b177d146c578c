"use strict";
// A cursor over all plots of a pool, with their values read back from the drawn paths. The report is complete without it.
(() => {
  const readout = document.getElementById("readout");
  const points = new WeakMap();
  const parse = path => {
    if (!points.has(path)) {
      const found = [];
      let x = 0, y = 0;
      for (const [, pen, a, b] of path.getAttribute("d").matchAll(/([MLHVh])(-?[\d.]+)(?: (-?[\d.]+))?/g)) {
        if (pen === "M" || pen === "L") { x = +a; y = +b; if (pen === "M") found.push(null); found.push([x, y]); }
        else if (pen === "H") { x = +a; found.push([x, y]); }
        else if (pen === "V") { y = +a; found.push([x, y]); }
      }
      points.set(path, found);
    }
    return points.get(path);
  };
  const read = (path, x) => {
    const step = path.dataset.step;
    let best = null, far = Infinity, before = null;
    for (const p of parse(path)) {
      if (p === null) { before = null; continue; }
      if (step && before && before[0] <= x && x < p[0]) return before[1];
      const d = Math.abs(p[0] - x);
      if (d < far) { far = d; best = p; }
      before = p;
    }
    return best && far < 8 ? best[1] : null;
  };
  const words = (value, unit) => {
    const short = v => String(+v.toPrecision(3));
    if (unit === "s") return value < 1 ? short(value * 1000) + " ms" : short(value) + " s";
    if (unit === "ratio") return short(value * 100) + " %";
    return short(value) + (unit === "1/s" ? "/s" : "");
  };
  for (const svg of document.querySelectorAll("svg.pool")) {
    const data = svg.dataset, left = +data.left, width = +data.width, box = svg.viewBox.baseVal;
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cursor.setAttribute("class", "cursor");
    svg.append(cursor);
    const leave = () => { cursor.setAttribute("d", ""); readout.style.display = "none"; };
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("pointermove", event => {
      const x = (event.clientX - svg.getBoundingClientRect().left) / svg.clientWidth * box.width;
      if (x < left || x > left + width) { leave(); return; }
      cursor.setAttribute("d", `M${x} 0V${box.height - 20}`);
      const at = +data.start + (x - left) / width * (data.end - data.start);
      readout.replaceChildren();
      const add = (name, value) => {
        const span = document.createElement("span"), strong = document.createElement("b");
        strong.textContent = value;
        span.append(name + " ", strong);
        readout.append(span);
      };
      const clock = new Date(at * 1000).toISOString();
      add("", data.offset ? clock.slice(11, 19) : clock.slice(0, 19).replace("T", " "));
      for (const path of svg.querySelectorAll("path[data-name]")) {
        const y = read(path, x);
        if (y === null) continue;
        const d = path.dataset, share = (d.bottom - y) / (d.bottom - d.top);
        const value = d.log === "1" ? d.lo * (d.hi / d.lo) ** share : +d.lo + share * (d.hi - d.lo);
        add(d.name, words(d.step ? Math.round(value * 100) / 100 : value, d.unit));
      }
      for (const rect of svg.querySelectorAll("rect.why")) {
        const begin = +rect.getAttribute("x");
        if (begin <= x && x < begin + +rect.getAttribute("width")) {
          const reason = document.createElement("span");
          reason.className = "reason";
          reason.textContent = rect.querySelector("title").textContent;
          readout.append(reason);
        }
      }
      readout.style.display = "block";
    });
  }
  const open = () => {
    const chosen = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (chosen && chosen.tagName === "DETAILS") { chosen.open = true; chosen.scrollIntoView(); }
  };
  addEventListener("hashchange", open);
  open();
})();
