// Charts: a crosshair with the values of a step, by mouse, touch and keyboard, at the same time in
// every chart of the page; dragging over a chart selects a range; the cells of the heatmap. The
// charts are drawn by the server and complete without this file.
(function () {
  "use strict";

  var at = null; // the time of the crosshair, in seconds since 1970
  var origin = null; // where a drag began: its chart and fraction
  var decoded = new WeakMap();

  function all(selector, within) { return Array.prototype.slice.call((within || document).querySelectorAll(selector)); }
  function plotOf(el) { return el && el.closest && el.closest(".plot[data-chart]"); }

  // A chart's data, read again when the server has drawn it again.
  function data(plot) {
    var text = plot.getAttribute("data-chart"), known = decoded.get(plot);
    if (!known || known.text !== text) {
      known = { text: text, d: JSON.parse(text) };
      known.d.l.forEach(function (l) {
        l.v = l.v.split(",").map(function (v) { return v === "" ? null : Number(v); });
      });
      decoded.set(plot, known);
    }
    return known.d;
  }
  function length(d) { return d.l.length ? d.l[0].v.length : 0; }
  function last(d) { return Math.min(length(d) - 1, d.n ? Math.floor((d.n - d.t) / d.s) : length(d) - 1); }

  function two(n) { return (n < 10 ? "0" : "") + n; }
  var months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  function clock(seconds, day) {
    var t = new Date(seconds * 1000);
    return (day ? months[t.getUTCMonth()] + " " + t.getUTCDate() + " " : "") + two(t.getUTCHours()) + ":" + two(t.getUTCMinutes());
  }
  function span(from, step, total, now) {
    var end = now && now < from + step ? "now" : clock(from + step, false);
    return clock(from, total > 90000) + "–" + end + (end === "now" ? "" : " UTC");
  }

  function number(v) { return (Math.round(v * 10) / 10).toLocaleString("en-US"); }
  function rounded(v) { return number(v < 10 ? v : Math.round(v)); }
  function text(v, unit) {
    if (v === null) return "no record";
    if (unit !== "seconds") return rounded(v);
    if (v < 1) return Math.round(v * 1000) + " ms";
    if (v < 120) return rounded(v) + " s";
    if (v < 3600) return rounded(v / 60) + " min";
    return v < 172800 ? rounded(v / 3600) + " h" : rounded(v / 86400) + " d";
  }
  function reading(d, i) {
    var values = d.l.map(function (l) { return l.v[i]; });
    if (values.every(function (v) { return v === null; })) return "no record";
    return d.l.map(function (l) { return l.n + " " + text(l.v[i], d.u); }).join(", ");
  }

  // Draws the crosshair of one chart, or removes it.
  function draw(plot) {
    var d = data(plot), line = plot.querySelector(".cross"), out = plot.parentNode.querySelector(".readout");
    var i = at === null ? -1 : Math.floor((at - d.t) / d.s);
    var shown = i >= 0 && i < length(d);
    line.setAttribute("visibility", shown ? "visible" : "hidden");
    if (shown) {
      var x = (i + 0.5) / length(d) * 100 + "%";
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
    }
    if (out) out.textContent = shown ? span(d.t + i * d.s, d.s, d.s * length(d), d.n) + " · " + reading(d, i) : "";
    return shown ? i : -1;
  }
  function drawAll() { all(".plot[data-chart]").forEach(draw); }

  function say(what) {
    var said = document.querySelector("[data-chart-said]");
    if (said && said.textContent !== what) said.textContent = what;
  }
  function point(plot, i, aloud) {
    var d = data(plot);
    at = d.t + i * d.s;
    drawAll();
    if (aloud) say(span(d.t + i * d.s, d.s, d.s * length(d), d.n) + ": " + reading(d, i));
  }
  function leave() {
    at = null;
    drawAll();
    say("");
  }

  function fraction(el, evt) {
    var box = el.getBoundingClientRect();
    return Math.min(1, Math.max(0, (evt.clientX - box.left) / box.width));
  }
  function follow(plot, evt) {
    var d = data(plot);
    if (length(d)) point(plot, Math.min(last(d), Math.floor(fraction(plot.querySelector(".area"), evt) * length(d))), false);
  }

  // ---- selecting a range

  function selected(plot, from, to) {
    var rect = plot.querySelector(".selected");
    rect.setAttribute("x", Math.min(from, to) * 100 + "%");
    rect.setAttribute("width", Math.abs(to - from) * 100 + "%");
  }
  function choose(plot, from, to) {
    var d = data(plot), time = function (f, up) {
      return new Date((d.t + (up ? Math.ceil : Math.floor)(f * length(d)) * d.s) * 1000).toISOString().replace(".000", "");
    };
    var url = new URL(window.location.href);
    ["range", "span", "after_seq"].forEach(function (n) { url.searchParams.delete(n); });
    var start = time(Math.min(from, to), false), end = time(Math.max(from, to), true);
    if (Date.parse(end) - Date.parse(start) < 300000) end = new Date(Date.parse(start) + 300000).toISOString().replace(".000", "");
    url.searchParams.set("from", start);
    url.searchParams.set("to", end);
    window.location.assign(url);
  }

  document.addEventListener("pointerdown", function (evt) {
    var plot = plotOf(evt.target);
    if (!plot || evt.button) return;
    follow(plot, evt);
    if (evt.pointerType === "touch") return;
    origin = { plot: plot, at: fraction(plot.querySelector(".area"), evt), x: evt.clientX };
  });
  document.addEventListener("pointermove", function (evt) {
    var plot = origin ? origin.plot : plotOf(evt.target);
    if (!plot) {
      if (at !== null && !plotOf(document.activeElement)) leave();
      return;
    }
    follow(plot, evt);
    if (origin) selected(plot, origin.at, fraction(plot.querySelector(".area"), evt));
  });
  document.addEventListener("pointerup", function (evt) {
    if (!origin) return;
    var began = origin, to = fraction(began.plot.querySelector(".area"), evt);
    origin = null;
    selected(began.plot, 0, 0);
    if (Math.abs(evt.clientX - began.x) > 8) choose(began.plot, began.at, to);
  });

  // ---- keys

  document.addEventListener("keydown", function (evt) {
    var plot = plotOf(evt.target);
    if (evt.key === "Escape" && origin) {
      selected(origin.plot, 0, 0);
      origin = null;
    }
    if (!plot || evt.ctrlKey || evt.metaKey || evt.altKey) return;
    var d = data(plot), end = last(d);
    if (end < 0) return;
    var i = at === null ? end + (evt.key === "ArrowLeft" ? 1 : 0) : Math.floor((at - d.t) / d.s);
    var jump = evt.shiftKey ? 10 : 1;
    if (evt.key === "ArrowLeft") i -= jump;
    else if (evt.key === "ArrowRight") i += at === null ? 0 : jump;
    else if (evt.key === "Home") i = 0;
    else if (evt.key === "End") i = end;
    else if (evt.key === "Escape") {
      leave();
      return;
    } else return;
    evt.preventDefault();
    point(plot, Math.min(end, Math.max(0, i)), true);
  });
  document.addEventListener("focusout", function (evt) {
    if (plotOf(evt.target) && !plotOf(evt.relatedTarget)) leave();
  });

  // ---- the heatmap

  function cell(svg, evt) {
    var values = svg.getAttribute("data-values").split(",");
    return Math.min(values.length - 1, Math.floor(fraction(svg, evt) * values.length));
  }
  function heat(svg) {
    var map = svg.closest("[data-heatmap]"), step = Number(map.getAttribute("data-heatmap"));
    return { values: svg.getAttribute("data-values").split(","), step: step, from: Date.parse(map.getAttribute("data-from")) / 1000,
      out: map.parentNode.querySelector(".heat-readout"), name: svg.previousElementSibling.textContent };
  }
  function readCell(svg, i) {
    var h = heat(svg);
    svg.setAttribute("data-cell", i);
    at = h.from + i * h.step;
    drawAll();
    var mark = svg.querySelector("rect") || svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "rect"));
    all(".heat rect").forEach(function (r) { if (r !== mark) r.remove(); });
    mark.setAttribute("class", "cell-mark");
    mark.setAttribute("x", i * 10);
    mark.setAttribute("width", 10);
    mark.setAttribute("height", 20);
    h.out.textContent = h.name + ", " + span(at, h.step, h.step * h.values.length, 0) + ": " +
      (h.values[i] ? number(Number(h.values[i])) + " events behind. Enter opens its events of that time." : "not behind, or not sampled");
  }
  function openCell(svg, i) {
    var h = heat(svg), iso = function (s) { return new Date(s * 1000).toISOString().replace(".000", ""); };
    var from = h.from + i * h.step, to = from + Math.max(h.step, 300);
    window.location.assign(svg.previousElementSibling.getAttribute("href").split("?")[0] + "?from=" + encodeURIComponent(iso(from)) + "&to=" + encodeURIComponent(iso(to)));
  }
  document.addEventListener("pointermove", function (evt) {
    var svg = evt.target.closest && evt.target.closest(".heat");
    if (svg) readCell(svg, cell(svg, evt));
  });
  document.addEventListener("click", function (evt) {
    var svg = evt.target.closest && evt.target.closest(".heat");
    if (svg) openCell(svg, cell(svg, evt));
  });
  document.addEventListener("keydown", function (evt) {
    var svg = evt.target.closest && evt.target.closest(".heat");
    if (!svg || evt.ctrlKey || evt.metaKey || evt.altKey) return;
    var rows = all(".heat"), h = heat(svg), i = Number(svg.getAttribute("data-cell") || h.values.length - 1);
    var to = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: h.values.length - 1 }[evt.key];
    var row = { ArrowUp: -1, ArrowDown: 1 }[evt.key];
    if (evt.key === "Enter") openCell(svg, i);
    else if (row) {
      var next = rows[rows.indexOf(svg) + row];
      if (next) {
        readCell(next, i);
        next.focus();
      }
    } else if (to !== undefined) readCell(svg, Math.min(h.values.length - 1, Math.max(0, to)));
    else return;
    evt.preventDefault();
  });

  function ready() {
    all(".plot[data-chart],.heat").forEach(function (el) { el.setAttribute("tabindex", "0"); });
    drawAll();
  }
  document.addEventListener("htmx:afterSwap", ready);
  ready();
})();
