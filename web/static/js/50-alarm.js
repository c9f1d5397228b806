// The alarm: what the title and the icon of the tab say of the system, and browser notifications for
// those who asked for them. Without this file the title is that of the time the page was loaded.
(function () {
  "use strict";

  var here = window.outboxweb, kept = here.kept;
  var glyphs = { bad: "\u2715", warn: "!" };
  var level = "", text = "";

  function show(header) {
    if (typeof header !== "string") return;
    var space = header.indexOf(" ");
    var was = level + text;
    level = space < 0 ? "" : header.slice(0, space);
    text = space < 0 ? "" : header.slice(space + 1);
    document.title = (glyphs[level] ? glyphs[level] + " " + text + " \u00b7 " : "") + document.title.replace(/^[\u2715!] [^\u00b7]*\u00b7 /, "");
    var icon = document.querySelector('link[rel="icon"][data-icon]');
    var href = icon && (icon.getAttribute("data-icon-" + level) || icon.dataset.icon);
    if (icon && icon.getAttribute("href") !== href) icon.setAttribute("href", href);
    if (was !== level + text) notify();
  }

  document.addEventListener("htmx:beforeSwap", function (evt) {
    var xhr = evt.detail.xhr;
    if (xhr.getResponseHeader("Outboxweb-As-Of")) show(xhr.getResponseHeader("Outboxweb-Alarm"));
  });

  // ---- notifications

  // What was last told, shared by all tabs, so that one trouble is told once and at most once an
  // hour.
  var hour = 3600000;
  function able() { return "Notification" in window && window.isSecureContext; }
  function on() { return able() && Notification.permission === "granted" && kept("notify") === "on"; }

  function kind() { return level === "bad" ? text.replace(/^\d+ /, "") : ""; }
  function notify() {
    if (!on()) return;
    var told = kept("notify-kind"), at = Number(kept("notify-at"));
    if (kind() === told && (!told || Date.now() - at < hour)) return;
    kept("notify-kind", kind());
    kept("notify-at", String(Date.now()));
    var note = new Notification("outboxweb: " + (kind() ? text : "no alarm any more"), { tag: "outboxweb" + here.base, body: location.host + here.base });
    note.onclick = function () { window.focus(); note.close(); };
  }

  function button() {
    var b = document.querySelector("[data-notify]");
    if (!b) return;
    b.hidden = !able();
    b.setAttribute("aria-pressed", String(on()));
    b.textContent = able() && Notification.permission === "denied" ? "Notifications: blocked by the browser" : "Notifications: " + (on() ? "on" : "off");
  }
  document.addEventListener("click", function (evt) {
    if (!evt.target.closest || !evt.target.closest("[data-notify]")) return;
    if (on()) {
      kept("notify", "off");
      button();
    } else Notification.requestPermission().then(function () {
      kept("notify", "on");
      kept("notify-kind", kind());
      button();
      watch();
    });
  });

  document.addEventListener("htmx:afterSwap", button); // a form's answer may replace the whole page

  // A page that does not refresh asks for the alarm alone; one in the background only for readers
  // who want notifications.
  function watch() {
    var live = document.querySelector("[data-live]") && !document.hidden;
    if (live || document.hidden && !on()) return;
    here.ask().then(function (found) { show(found.alarm); });
  }
  window.setInterval(watch, 30000);
  document.addEventListener("visibilitychange", watch);
  if (document.body.dataset.watch) {
    var icon = document.querySelector('link[rel="icon"][data-icon]');
    if (icon) level = icon.getAttribute("href") === icon.dataset.iconBad ? "bad" : icon.getAttribute("href") === icon.dataset.iconWarn ? "warn" : "";
    var told = level && document.title.split(" \u00b7 ")[0];
    if (told) text = told.slice(2);
  }
  button();
})();
