// Progressive enhancement of the pages: refresh live parts without disturbing the reader, display
// times, and handle keyboard shortcuts. Every page works without this file.
(function () {
  "use strict";

  var each = function (selector, f, root) { Array.prototype.forEach.call((root || document).querySelectorAll(selector), f); };
  var first = function (selector) { return document.querySelector(selector); };

  // The path of this console. Others may be on its host, and share its origin and so its storage.
  var base = (document.body.dataset.watch || "").replace(/\/watch$/, "");

  // A setting that this browser keeps for this console, unless it keeps none.
  function kept(name, value) {
    var key = "outboxweb " + base + " " + name;
    try {
      if (value !== undefined) localStorage.setItem(key, value);
      return localStorage.getItem(key) || "";
    } catch (e) { return ""; }
  }

  // ---- times

  // The server's clock, so that a wrong clock here does not falsify ages.
  var skew = 0;
  function noteServerTime(iso) {
    var t = Date.parse(iso || "");
    if (!isNaN(t)) skew = t - Date.now();
  }
  function now() { return Date.now() + skew; }

  function age(ms) {
    var s = Math.floor(ms / 1000);
    if (s < 1) return "0 s";
    if (s < 60) return s + " s";
    if (s < 3600) return Math.floor(s / 60) + " min";
    if (s < 172800) return Math.floor(s / 3600) + " h";
    return Math.floor(s / 86400) + " d";
  }
  function ago(ms) {
    if (ms <= -1000) return "in " + age(-ms);
    return ms < 1000 ? "now" : age(ms) + " ago";
  }

  // Display of times: as ages, or as times of day in UTC or in the reader's zone.
  var forms = ["relative", "UTC", "local"];
  var form = kept("times");
  if (forms.indexOf(form) < 0) form = "relative";
  function named() { return form === "local" ? "local (" + Intl.DateTimeFormat().resolvedOptions().timeZone + ")" : form; }

  function two(n) { return (n < 10 ? "0" : "") + n; }
  function hour(t) {
    var d = new Date(t);
    if (form === "UTC") return d.toISOString().slice(0, 19).replace("T", " ") + "Z";
    return d.getFullYear() + "-" + two(d.getMonth() + 1) + "-" + two(d.getDate()) + " " + two(d.getHours()) + ":" + two(d.getMinutes()) + ":" + two(d.getSeconds());
  }
  function say(el, text) { if (el.textContent !== text) el.textContent = text; }
  function tell(el) {
    var t = Date.parse(el.getAttribute("datetime"));
    if (isNaN(t)) return;
    if (!el.title) el.title = el.getAttribute("datetime");
    if (form !== "relative") say(el, hour(t));
    else say(el, el.dataset.rel === "age" ? age(now() - t) : ago(now() - t));
  }
  function nextForm() {
    form = forms[(forms.indexOf(form) + 1) % forms.length];
    kept("times", form);
    tick();
  }

  // Content older than this is marked as stale, unless the page is hidden.
  var oldAfter = 15000;
  function tick() {
    if (document.hidden) return;
    each("time[data-rel]", tell);
    var el = first("[data-as-of]");
    var looked = el && Date.parse(el.getAttribute("datetime"));
    if (looked) {
      say(first("[data-looked]"), "Updated");
      say(el, ago(now() - looked));
      el.parentNode.classList.toggle("old", !!first("[data-live]") && !first("[data-ended]") && now() - looked > oldAfter);
    }
    each("[data-times]", function (b) { b.hidden = false; say(b, "Times: " + named()); });
  }

  // An id without its middle, and text that is cut for want of room, are whole in their title.
  document.addEventListener("pointerover", function (evt) {
    var id = evt.target.closest && evt.target.closest("code"), cut = evt.target.closest && evt.target.closest(".why");
    if (id && id.querySelector("i")) id.title = id.textContent;
    else if (cut && cut.scrollWidth > cut.clientWidth) cut.title = cut.textContent.trim();
  });

  // ---- live parts

  var paused = false;
  var shut = false; // the session is over, or access was lost: nothing is polled until the server answers again

  // No refresh while the reader types, has a refused form, selects text, turned off auto-refresh or
  // has the page in the background.
  function busy(el) {
    if (document.hidden || paused || shut || asking || el.querySelector("#refusal")) return true;
    var active = document.activeElement;
    if (active && el.contains(active) && /^(INPUT|SELECT|TEXTAREA)$/.test(active.tagName) && active.type !== "checkbox") return true;
    if (typedIn(el).length > 0) return true;
    var sel = window.getSelection && window.getSelection();
    return !!(sel && !sel.isCollapsed && el.contains(sel.anchorNode));
  }

  // The fields changed by the reader.
  function typedIn(el) {
    return Array.prototype.filter.call(el.querySelectorAll("input:not([type=checkbox]):not([type=radio]),textarea"), function (i) {
      return i.value !== i.defaultValue;
    });
  }

  // Finished work does not change: it is read again only when the reader returns to the page.
  function ended(el) { return !!el.querySelector("[data-ended]"); }
  function asked(evt) {
    var config = evt.detail.requestConfig;
    return !!(config && config.triggeringEvent);
  }

  function setStale(why, link) {
    var note = first("[data-stale]");
    if (!note) return;
    note.hidden = !why;
    say(note, why);
    if (link) note.append(" ", link);
  }

  // An expired session or a revoked role is not a server fault: the page says why once and stops
  // polling. Without a reason it goes on.
  function shutOut(why, link) {
    shut = !!why;
    setStale(why, link);
    reveal();
  }

  // The status of an error that the server sends to scripts with 200, so that the browser logs
  // nothing to its console; null without an error.
  function refusedBy(xhr) { return xhr.getResponseHeader("Outboxweb-Status"); }
  function statusOf(xhr) { return Number(refusedBy(xhr)) || xhr.status; }

  // ---- the session at a proxy

  // Whether an answer is from this server: a proxy's sign-in page does not belong on the page. Apache
  // removes the mark from a 304.
  function ours(xhr) { return xhr.status === 304 || !!xhr.getResponseHeader("Outboxweb"); }

  // By these headers most proxies tell a script's request, and answer with 401. Otherwise they start a
  // login, whose cookie replaces that of a login in another tab.
  var byScript = { "Accept": "application/json", "X-Requested-With": "XMLHttpRequest" };

  // Reads an address of this server, without following a proxy to its login.
  function get(url, signal) {
    return fetch(url, { cache: "no-store", redirect: "manual", headers: byScript, signal: signal });
  }

  // Asks whether this server can be reached: the promise is of { alarm } if so, of { over: true } if the
  // session at a proxy has ended, which the page then says.
  var asking = null;
  function ask() {
    asking = asking || get(document.body.dataset.watch).then(function (answer) {
      if (answer.headers.get("Outboxweb")) {
        if (answer.ok && shut) shutOut("");
        return { alarm: answer.headers.get("Outboxweb-Alarm") };
      }
      var over = answer.type === "opaqueredirect" || [200, 401, 403].indexOf(answer.status) >= 0;
      if (over) shutOut("Your session has ended; the data shown is stale.", linkHere("Sign in", ""));
      return { over: over };
    }, function () { return {}; }).then(function (found) {
      asking = null;
      return found;
    });
    return asking;
  }

  // A form that is sent as an address may not lead to a login at another origin. The address may.
  document.addEventListener("securitypolicyviolation", function (evt) {
    if (evt.effectiveDirective === "form-action" && evt.blockedURI.indexOf(location.origin + "/") === 0) location.assign(evt.blockedURI);
  });

  // A link to this page: the proxy leads from there to its login and back.
  function linkHere(text, target) {
    var link = document.createElement("a");
    link.href = location.pathname + location.search;
    link.target = target;
    link.textContent = text;
    return link;
  }

  // Asks why a request got no answer of this server. If the session is over, a form keeps what was typed,
  // and a link or filter leads away, as it does without scripts.
  function unanswered(evt) {
    var xhr = evt.detail.xhr, config = evt.detail.requestConfig, el = config.elt;
    ask().then(function (found) {
      var why = xhr.status ? "A proxy answered with status " + xhr.status : "The server cannot be reached";
      if (!found.over && el.hasAttribute("data-live")) {
        away();
        setStale(why + "; the data shown is stale.");
      } else if (!found.over) refuse(el, [why + ". Your input is still here: try again in a moment."]);
      else if (config.verb !== "get") refuse(el, ["Your session has ended. ", linkHere("Sign in in another tab", "_blank"), ", then press again."]);
      else if (config.triggeringEvent) location.assign(evt.detail.pathInfo.finalRequestPath);
    });
  }
  document.addEventListener("htmx:sendError", unanswered);

  // An unreachable or overloaded server is polled less and less often.
  var wait = 0, askAgain = 0, longestWait = 16000;
  function away() {
    wait = Math.min(wait * 2 || 2000, longestWait);
    askAgain = Date.now() + wait;
  }

  // The action that led to the page is followed to its end: the answer has its level and what became
  // of it.
  var marks = { ok: "\u2713", busy: "\u2026", warn: "!" };
  function tellSince(since) {
    var act = first("[data-act]");
    var space = since ? since.indexOf(" ") : -1;
    if (!act || space < 0) return;
    act.className = "flash " + since.slice(0, space);
    say(act.querySelector(".mark"), marks[since.slice(0, space)]);
    say(act.querySelector("[data-since]"), since.slice(space + 1));
  }

  function live(evt) {
    var el = evt.detail.elt;
    return el && el.hasAttribute && el.hasAttribute("data-live") ? el : null;
  }

  document.addEventListener("htmx:beforeRequest", function (evt) {
    evt.detail.error = ""; // errors are shown on the page, not in the console
    var el = live(evt);
    if (el && (busy(el) || (ended(el) || Date.now() < askAgain) && !asked(evt))) evt.preventDefault();
  });
  document.addEventListener("htmx:configRequest", function (evt) {
    Object.assign(evt.detail.headers, byScript);
    var el = live(evt);
    if (el && el.dataset.etag) evt.detail.headers["If-None-Match"] = el.dataset.etag;
    var act = el && first("[data-act]");
    if (act) evt.detail.headers["Outboxweb-Act"] = act.dataset.act;
  });
  document.addEventListener("htmx:beforeSwap", function (evt) {
    var el = live({ detail: { elt: evt.detail.requestConfig && evt.detail.requestConfig.elt } });
    if (!el) return;
    var xhr = evt.detail.xhr, status = statusOf(xhr);
    if (status !== 200) evt.detail.shouldSwap = false;
    if (!ours(xhr)) return;
    if (status === 401 || status === 403) {
      shutOut(xhr.responseText + " The data shown is stale.");
      return;
    }
    if (status !== 200 && status !== 304) {
      away();
      setStale("The server answered " + status + "; the data shown is stale.");
      return;
    }
    wait = askAgain = 0;
    setStale("");
    if (hand || sent()) {
      evt.detail.shouldSwap = false;
      return;
    }
    el.dataset.etag = xhr.getResponseHeader("ETag") || "";
    var stamp = xhr.getResponseHeader("Outboxweb-As-Of");
    var asOf = first("[data-as-of]");
    if (stamp && asOf) asOf.setAttribute("datetime", stamp);
    noteServerTime(xhr.getResponseHeader("Outboxweb-Now"));
    tellSince(xhr.getResponseHeader("Outboxweb-Since"));
    tick();
  });
  // In the same step as the swap, so that the server's text is never visible.
  document.addEventListener("htmx:afterSwap", function () { reveal(); tick(); });

  // ---- a form acts once

  // From when a form is sent until its answer has been in sight for long enough to be read, no form is
  // sent: what is pressed meanwhile was meant for the page before.
  var root = document.documentElement, unread = 600; // ms
  function sent() { return root.hasAttribute("data-sent"); }
  document.addEventListener("htmx:beforeSend", function (evt) {
    var by = evt.detail.requestConfig.triggeringEvent;
    if (!by || by.type !== "submit") return;
    root.setAttribute("data-sent", "");
    evt.detail.xhr.addEventListener("loadend", function () {
      window.setTimeout(function () { root.removeAttribute("data-sent"); }, unread);
    });
  });
  document.addEventListener("submit", function (evt) {
    if (!sent() || !evt.target.closest("[hx-boost]")) return;
    evt.preventDefault();
    evt.stopImmediatePropagation();
  }, true);
  document.addEventListener("keydown", function (evt) { // a held key would send what it has sent
    if (evt.repeat && evt.key === "Enter" && evt.target.closest && evt.target.closest("form") && evt.target.tagName !== "TEXTAREA") evt.preventDefault();
  }, true);

  // While a key or button is down on a form or a chart, they stay as they were shown then.
  var hand = false;
  function down(evt) { hand = !!(evt.target.closest && evt.target.closest("form button, form input, .plot")); }
  function up() { window.setTimeout(function () { hand = false; }); } // once it has been acted on
  ["pointerdown", "keydown"].forEach(function (name) { document.addEventListener(name, down, true); });
  ["pointerup", "pointercancel", "keyup"].forEach(function (name) { document.addEventListener(name, up, true); });
  window.addEventListener("blur", up);

  window.addEventListener("online", look);

  // ---- forms that were refused

  // Shows at a form why it failed if the server could not: texts and links.
  function refuse(form, why) {
    if (!(form instanceof HTMLFormElement)) return;
    accept();
    var said = document.createElement("div");
    said.id = said.className = "refusal";
    said.setAttribute("role", "alert");
    said.tabIndex = -1;
    said.append.apply(said, why);
    form.prepend(said);
    said.focus();
  }

  // Removes what an earlier refusal has put on the page.
  function accept() {
    each("#refusal", function (el) { el.remove(); });
    each("[aria-describedby=refusal]", function (el) {
      el.removeAttribute("aria-invalid");
      el.removeAttribute("aria-describedby");
    });
  }

  document.addEventListener("htmx:configRequest", function (evt) {
    if (evt.detail.elt instanceof HTMLFormElement) evt.detail.headers["Outboxweb-Form"] = "1";
  });
  document.addEventListener("htmx:beforeSwap", function (evt) {
    var d = evt.detail, xhr = d.xhr;
    if (!ours(xhr)) { // something between here and the server has answered
      d.shouldSwap = false;
      unanswered(evt);
      return;
    }
    if (live({ detail: { elt: d.requestConfig.elt } })) return;
    if (shut) shutOut("");
    if (refusedBy(xhr)) accept();
    else if (d.requestConfig.verb === "post" && document.activeElement) {
      document.activeElement.blur(); // the next page may have a field of the same id, for something else
    }
  });

  // The server's refusal is at the form, and names the fields at fault.
  document.addEventListener("htmx:afterSwap", function (evt) {
    var said = refusedBy(evt.detail.xhr) && first("form > #refusal");
    if (!said) return;
    var focus = said;
    said.dataset.fields.split(" ").forEach(function (name) {
      var field = name && said.parentNode.querySelector('[name="' + CSS.escape(name) + '"]:not([type=hidden])');
      if (!field) return;
      field.setAttribute("aria-invalid", "true");
      field.setAttribute("aria-describedby", "refusal");
      if (focus === said) focus = field;
    });
    if (statusOf(evt.detail.xhr) === 409) said.append(linkHere("Show the page as it is now", ""));
    focus.focus();
  });

  function look() {
    tick();
    if (window.htmx) each("[data-live]", function (el) { window.htmx.trigger(el, "look"); });
  }
  // A reader who returns in the middle of a login must not start another.
  document.addEventListener("visibilitychange", function () { if (!document.hidden) ask().then(look); });

  function pause() {
    var button = first("[data-pause]");
    if (!button) return;
    paused = !paused;
    reveal();
    if (!paused) look();
  }

  // ---- help, and controls that need this script

  function help() {
    var dialog = first("#keys");
    if (dialog && !dialog.open) dialog.showModal();
  }
  function reveal() {
    each("[data-pause],[data-help],[data-times]", function (b) { b.hidden = shut && b.hasAttribute("data-pause"); });
    var button = first("[data-pause]");
    if (!button) paused = false;
    else {
      button.setAttribute("aria-pressed", String(paused));
      say(button, paused ? "Auto-refresh: off" : "Auto-refresh: on");
    }
  }
  document.addEventListener("click", function (evt) {
    var on = function (what) { return evt.target.closest && evt.target.closest("[" + what + "]"); };
    if (on("data-pause")) pause();
    else if (on("data-help")) help();
    else if (on("data-times")) nextForm();
  });

  // ---- keys

  var going = 0; // end of the time in which a letter after g is a destination
  function go(letter) {
    var a = first('.top nav a[data-go="' + CSS.escape(letter) + '"]');
    if (a) a.click();
    return !!a;
  }
  document.addEventListener("keydown", function (evt) {
    if (evt.defaultPrevented) return;
    if ((evt.ctrlKey || evt.metaKey) && evt.key === "k") return toFind(evt);
    if (evt.ctrlKey || evt.metaKey || evt.altKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(evt.target.tagName) && evt.target.type !== "checkbox" || first("dialog[open]")) return;
    if (Date.now() < going && go(evt.key)) {
      going = 0;
      return;
    }
    going = evt.key === "g" ? Date.now() + 1500 : 0;
    if (evt.key === "?") help();
    else if (evt.key === "p") pause();
    else if (evt.key === "t") nextForm();
    else if (evt.key === "/") toFind(evt);
  });
  function toFind(evt) {
    var find = first("[data-find]");
    if (find) find.focus();
    evt.preventDefault();
  }

  if (window.Idiomorph) {
    // What the reader expanded stays expanded across refreshes.
    window.Idiomorph.defaults.callbacks.beforeAttributeUpdated = function (name, node) {
      return !(name === "open" && node.tagName === "DETAILS");
    };
    // A field keeps what is typed in it. The option keeps the content of any focused element, so it
    // is on for fields only: a focused link or button shows its own number.
    Object.defineProperty(window.Idiomorph.defaults, "ignoreActiveValue", {
      enumerable: true,
      get: function () { return /^(INPUT|SELECT|TEXTAREA)$/.test((document.activeElement || {}).tagName); },
    });
  }

  window.outboxweb = { base: base, kept: kept, get: get, ask: function () { return shut ? Promise.resolve({}) : ask(); } };
  noteServerTime(document.body.getAttribute("data-now"));
  reveal();
  tick();
  window.setInterval(tick, 1000);
})();
