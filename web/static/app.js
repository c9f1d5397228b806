// What the pages do beyond plain HTML: keep live parts fresh without losing
// what the reader is doing. Without this file every page still works.
(function () {
  "use strict";

  // The clock of the server, so that a wrong clock here cannot lie about ages.
  var skew = 0;
  function noteServerTime(iso) {
    var t = Date.parse(iso || "");
    if (!isNaN(t)) skew = t - Date.now();
  }
  function asOf() { return document.querySelector("[data-as-of]"); }

  function age(ms) {
    var s = Math.floor(ms / 1000);
    if (s < 1) return "0 s";
    if (s < 60) return s + " s";
    if (s < 3600) return Math.floor(s / 60) + " min";
    if (s < 172800) return Math.floor(s / 3600) + " h";
    return Math.floor(s / 86400) + " d";
  }

  function tick() {
    var el = asOf();
    var looked = el && Date.parse(el.getAttribute("datetime"));
    if (looked) el.textContent = age(Date.now() + skew - looked) + " ago";
  }

  // A reader who types, selects text or has the page in the background is not
  // disturbed, and the server is not asked.
  function busy(el) {
    if (document.hidden) return true;
    var active = document.activeElement;
    if (active && el.contains(active) && /^(INPUT|SELECT|TEXTAREA)$/.test(active.tagName) && active.type !== "checkbox") return true;
    var dirty = Array.prototype.some.call(el.querySelectorAll("input,textarea"), function (i) {
      return i.value !== i.defaultValue;
    });
    if (dirty) return true;
    var sel = window.getSelection && window.getSelection();
    return !!(sel && !sel.isCollapsed && el.contains(sel.anchorNode));
  }

  function setStale(why) {
    var note = document.querySelector("[data-stale]");
    if (!note) return;
    note.hidden = !why;
    note.textContent = why || "";
  }

  function live(evt) {
    var el = evt.detail.elt;
    return el && el.hasAttribute && el.hasAttribute("data-live") ? el : null;
  }

  document.addEventListener("htmx:beforeRequest", function (evt) {
    var el = live(evt);
    if (el && busy(el)) evt.preventDefault();
  });
  document.addEventListener("htmx:configRequest", function (evt) {
    var el = live(evt);
    if (el && el.dataset.etag) evt.detail.headers["If-None-Match"] = el.dataset.etag;
  });
  document.addEventListener("htmx:beforeSwap", function (evt) {
    var el = live({ detail: { elt: evt.detail.requestConfig && evt.detail.requestConfig.elt } });
    if (!el) return;
    var xhr = evt.detail.xhr;
    if (xhr.status !== 200) evt.detail.shouldSwap = false;
    if (xhr.status !== 200 && xhr.status !== 304) {
      setStale("The server answered " + xhr.status + "; what is shown is old.");
      return;
    }
    setStale("");
    el.dataset.etag = xhr.getResponseHeader("ETag") || "";
    var stamp = xhr.getResponseHeader("Outboxweb-As-Of");
    if (stamp && asOf()) asOf().setAttribute("datetime", stamp);
    noteServerTime(xhr.getResponseHeader("Outboxweb-Now"));
    tick();
  });
  document.addEventListener("htmx:sendError", function (evt) {
    if (live(evt)) setStale("The server cannot be reached; what is shown is old.");
  });
  document.addEventListener("visibilitychange", function () {
    if (document.hidden || !window.htmx) return;
    document.querySelectorAll("[data-live]").forEach(function (el) { window.htmx.trigger(el, "look"); });
  });

  if (window.Idiomorph) {
    // What the reader opened stays open while the page refreshes.
    window.Idiomorph.defaults.callbacks.beforeAttributeUpdated = function (name, node) {
      return !(name === "open" && node.tagName === "DETAILS");
    };
    window.Idiomorph.defaults.ignoreActiveValue = true;
  }

  var body = document.body;
  if (body) noteServerTime(body.getAttribute("data-now"));
  window.setInterval(tick, 1000);
})();
