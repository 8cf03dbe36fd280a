// Keeps the page up to date: the server says that something has changed, and the elements with
// `data-live` are exchanged for those of a fresh copy. All else, such as forms, stays.

const source = document.body.dataset.live;
const status = document.querySelector("#live-status");
const pause = document.querySelector("#live-pause");
let paused = false;
let busy = false;
let again = false;

function say(text) {
  if (status && status.textContent !== text) status.textContent = text;
}

/** Finds what has the focus, so that it can have it again after an exchange. */
function focused(part) {
  const element = document.activeElement;
  return element && part.contains(element) ? element.id : "";
}

function exchange(fresh) {
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const other = fresh.getElementById(part.id);
    if (!other || other.innerHTML === part.innerHTML) continue;
    const id = focused(part);
    const { scrollLeft, scrollTop } = part;
    part.replaceChildren(...document.importNode(other, true).childNodes);
    part.scrollLeft = scrollLeft;
    part.scrollTop = scrollTop;
    if (id) document.getElementById(id)?.focus({ preventScroll: true });
  }
}

async function refresh() {
  if (paused || document.hidden) return;
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    const response = await fetch(location.href, { headers: { accept: "text/html" } });
    if (response.status === 401) {
      say("Logged out: load the page again");
      return;
    }
    const text = await response.text();
    if (response.ok && !paused) {
      exchange(new DOMParser().parseFromString(text, "text/html"));
      say("Live");
    }
  } catch {
    say("The server does not answer");
  } finally {
    busy = false;
    if (again) {
      again = false;
      setTimeout(refresh, 500);
    }
  }
}

if (source && status) {
  const stream = new EventSource(source);
  stream.addEventListener("open", () => say("Live"));
  stream.addEventListener("changed", refresh);
  stream.addEventListener("error", () => say("Not connected"));
  document.addEventListener("visibilitychange", refresh);
  addEventListener("pagehide", () => stream.close());
}

if (pause && source) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    say(paused ? "Paused" : "Live");
    refresh();
  });
}

// A page out of the browser's own store has a closed stream: it begins anew.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});
