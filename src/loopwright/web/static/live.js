// What the browser does by itself: it says when the live connection is lost. Nothing is decided here.
(() => {
  const page = document.documentElement;
  const lost = () => page.classList.add("offline");
  const found = () => page.classList.remove("offline");
  document.addEventListener("htmx:sse:after:connection", found);
  document.addEventListener("htmx:sse:after:message", found);
  document.addEventListener("htmx:sse:error", lost);
  document.addEventListener("htmx:error", lost);
})();
