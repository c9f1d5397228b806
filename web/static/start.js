// Has the page painted before what can wait: its scripts, since every page works without them, and the
// rows of a list below the first screen.
(function () {
  "use strict";
  var root = document.documentElement;
  var urls = document.currentScript.dataset.scripts.split(" ");
  urls.forEach(function (url) {
    var ahead = document.createElement("link");
    ahead.rel = "preload";
    ahead.as = "script";
    ahead.href = url;
    document.head.append(ahead);
  });

  // Calls f after the next frame. A hidden page has none, but watches for trouble.
  function painted(f) {
    var called = false;
    function once() {
      if (!called) f();
      called = true;
    }
    window.requestAnimationFrame(function () { window.setTimeout(once); });
    window.setTimeout(once, document.hidden ? 0 : 500);
  }

  // A page that the reader returns to needs its full height, to be scrolled to where it was.
  var visit = performance.getEntriesByType("navigation")[0];
  if (visit && visit.type === "navigate" && !location.hash && performance.getEntriesByType("paint").length === 0) {
    root.setAttribute("data-unpainted", "");
    painted(function () { root.removeAttribute("data-unpainted"); });
  }

  window.addEventListener("load", function () {
    painted(function () {
      urls.forEach(function (url) {
        var script = document.createElement("script");
        script.src = url;
        script.async = false; // in this order
        document.head.append(script);
      });
    });
  });
})();
