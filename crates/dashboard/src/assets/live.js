// Keeps the page up to date: the server says that something has changed, and the elements with
// `data-live` are exchanged for those of a fresh copy, and forms while nobody uses them. All else
// stays.

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
    const scrolled = [...part.querySelectorAll(".scroll[id]")].map((box) => [box.id, box.scrollLeft]);
    part.replaceChildren(...document.importNode(other, true).childNodes);
    for (const [box, left] of scrolled) {
      const fresh = document.getElementById(box);
      if (fresh) fresh.scrollLeft = left;
    }
    if (id) document.getElementById(id)?.focus({ preventScroll: true });
  }
}

/** Exchanges forms that are out of date, or says so if somebody uses them. */
function exchangeForms(fresh) {
  for (const part of document.querySelectorAll("[data-forms][id]")) {
    const other = fresh.getElementById(part.id);
    if (!other || other.dataset.forms === part.dataset.forms) continue;
    if (part.querySelector("details[open]") || part.contains(document.activeElement)) {
      const note = part.querySelector("[data-stale]");
      if (note) note.textContent = note.dataset.stale;
    } else {
      part.replaceWith(document.importNode(other, true));
    }
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
      const fresh = new DOMParser().parseFromString(text, "text/html");
      exchange(fresh);
      exchangeForms(fresh);
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
