// Buttons that copy the text beside them. They are hidden unless this file runs and the browser
// permits pages to write to the clipboard, which requires https or localhost; the text can be
// selected in any case.
(function () {
  "use strict";
  if (!navigator.clipboard || !window.isSecureContext) return;
  document.documentElement.classList.add("can-copy");

  // A live region announces what was copied. It is created before it is needed, since screen readers
  // miss regions that appear together with their text.
  function region() {
    var el = document.getElementById("copied");
    if (!el) {
      el = document.createElement("p");
      el.id = "copied";
      el.className = "hidden";
      el.setAttribute("role", "status");
      document.body.appendChild(el);
    }
    return el;
  }
  region();

  function say(button, text) {
    button.textContent = text;
    region().textContent = text === "Copied" ? "Copied " + button.getAttribute("aria-label").replace(/^Copy /, "") + "." : "Copying failed.";
    window.setTimeout(function () { button.textContent = "Copy"; }, 2000);
  }

  document.addEventListener("click", function (evt) {
    var button = evt.target.closest && evt.target.closest("button.copy");
    var text = button && button.closest(".copyable, .id").querySelector("pre, code");
    if (!text) return;
    evt.preventDefault();
    navigator.clipboard.writeText(text.textContent).then(
      function () { say(button, "Copied"); },
      function () { say(button, "Not copied"); });
  });
})();
